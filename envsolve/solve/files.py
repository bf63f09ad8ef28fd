"""From a build that the catalogue describes to the file that its index serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urldefrag, urlsplit

from msgspec import structs
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.facts.builds import ANY, Build, IndexPlace
from envsolve.facts.catalogue import Catalogue
from envsolve.packages.client import IndexClient
from envsolve.packages.links import hashed
from envsolve.packages.model import CoreMetadata, IndexFile, MetadataUnavailableError
from envsolve.packages.requirements import Need
from envsolve.packages.urls import UNREAD, redact
from envsolve.rules.platform import Environment, python_tag
from envsolve.solve.needs import Candidate
from envsolve.values import CudaVersion

if TYPE_CHECKING:
    from envsolve.packages.source_trees import Read
    from envsolve.packages.urls import Tree


class BuildGoneError(Exception):
    """An index was reached and no longer lists a file that the catalogue knows."""

    def __init__(self, filename: str) -> None:
        super().__init__(filename)
        self.filename = filename


def _first(specifier: str | None) -> str:
    """The version in a specifier of one: ``2.8`` of ``==2.8.*``."""
    return next(iter(SpecifierSet(specifier or "==0.0"))).version.removesuffix(".*")


def place_words(build: Build, place: IndexPlace, filename: str) -> Mapping[str, str]:
    """The values of the placeholders in the URLs of a place that is not an index."""
    return {
        "torch": str(CudaVersion.parse(_first(build.torch))),
        "variant": build.variant,
        "tag": place.tags.get(build.version, f"v{build.version}"),
        "filename": quote(filename),
    }


class FamilyFiles:
    """Looks up the files of family builds, each on the one index that its build names."""

    def __init__(self, client: IndexClient, catalogue: Catalogue, python: str) -> None:
        self._client = client
        self._catalogue = catalogue
        self._python = python

    def index_of(self, build: Build) -> str | None:
        """URL of the build's index; None for the default one."""
        place = self._catalogue.indexes.get(build.index)
        # What goes with any variant stands where the CPU builds do: see Family.
        return place.url.format(variant="cpu" if build.variant == ANY else build.variant) if place else None

    def file(self, build: Build) -> IndexFile:
        """The file as its index lists it.

        Raises:
            IndexUnavailableError: The index cannot be reached.
            BuildGoneError: It was reached and does not list the file.
        """
        if (linked := self._linked(build)) is not None:
            return linked
        filename = self.filename(build)
        file = self._client.listing(build.package, self.index_of(build)).named(filename)
        if file is None:
            raise BuildGoneError(filename)
        return file

    def _linked(self, build: Build) -> IndexFile | None:
        """The file in a directory or on a page that the user names, which go before any index, as for pip.

        A damaged file is none: the catalogue has the metadata, so nothing else would read it before it is installed.
        """
        file = self._client.linked(build.package).named(self.filename(build))
        if file is not None and file.url.startswith("file:"):
            try:
                self._client.metadata(file)
            except MetadataUnavailableError as failure:
                self._client.links.unread[file.url] = failure
                return None
        return file

    def missing(self, packages: Iterable[str]) -> frozenset[str]:
        """Without an index, the files of packages that no directory or page has; nothing if there are indexes."""
        if not self._client.settings.no_index:
            return frozenset()
        found: set[str] = set()
        for package in packages:
            there = {file.filename for file in self._client.linked(package)}
            found |= {self.filename(build) for build in self._catalogue.builds(package)} - there
        return frozenset(found)

    def from_catalogue(self, build: Build) -> IndexFile:
        """The file as the catalogue knows it, for an index out of reach; the URL follows the index's scheme."""
        tag = python_tag(build.pythons, self._python) or build.pythons[0]
        filename = build.filename(tag)
        fact = build.files.get(tag)
        hashes = {"sha256": fact.sha256} if fact and fact.sha256 else {}
        index = self.index_of(build)
        url = f"{index.rstrip('/')}/{quote(filename)}" if index else ""
        return IndexFile(filename, url, index or "", hashes, build.requires_python, size=fact.size if fact else None)

    def known(self, build: Build) -> tuple[IndexFile, IndexUnavailableError | None]:
        """The listed file or, if the index cannot be reached, the catalogue's data and the failure.

        Raises:
            BuildGoneError: Its index, or the page that links to it, does not list it; or that page cannot be read.
        """
        if (linked := self._linked(build)) is not None:
            return linked, None
        if self._client.settings.no_index:
            raise BuildGoneError(self.filename(build))
        place = self._catalogue.indexes.get(build.index)
        if place is not None and place.kind != "simple":
            return self._off_index(build, place), None
        try:
            return self.file(build), None
        except IndexUnavailableError as failure:
            return self.from_catalogue(build), failure

    def _off_index(self, build: Build, place: IndexPlace) -> IndexFile:
        """A file that no installer finds by its name: at the URL of its release, or where a page of links says."""
        filename = self.filename(build)
        fact = build.files.get(python_tag(build.pythons, self._python) or build.pythons[0])
        hashes = {"sha256": fact.sha256} if fact and fact.sha256 else {}
        words = place_words(build, place, filename)
        scheme = place.url
        if place.kind == "links":
            try:
                file = self._client.listing(build.package, place.url.format_map(words)).named(filename)
                if file is None:
                    raise BuildGoneError(filename)
                return IndexFile(filename, file.url, "", file.hashes or hashes, file.requires_python)
            except IndexUnavailableError:
                if place.scheme is None:
                    raise BuildGoneError(filename) from None
                scheme = place.scheme
        size = fact.size if fact else None
        return IndexFile(filename, scheme.format_map(words), "", hashes, build.requires_python, size=size)

    def filename(self, build: Build) -> str:
        """The build's file name for the planned Python."""
        return build.filename(python_tag(build.pythons, self._python) or build.pythons[0])


# Direct references: ``name @ https://.../x.whl`` is read like any file, ``name @ git+...`` without its build.


class DirectReferences:
    """Candidates for requirements that name a URL; each URL is read once."""

    def __init__(self, client: IndexClient) -> None:
        self._client = client
        self._trees: dict[str, Read] = {}

    def candidate(self, name: str, url: str, extra: str | None) -> Candidate:
        """The one candidate that a URL gives."""
        version = version_at(url)
        if file_at(url) is None and (said := self._tree(name, url).metadata.version):
            version = _readable(said)
        return Candidate(name, version, extra, url=url)

    def metadata(self, name: str, url: str) -> CoreMetadata:
        """Metadata of the file or the tree at a URL; inexact where only its build knows it.

        Raises:
            UsageError: It is another package than the one that was requested.
        """
        file = self.asked_for(url)
        metadata = self._tree(name, url).metadata if file is None else self._client.metadata(file)
        if canonicalize_name(metadata.name) != name:
            raise UsageError(
                f"{redact(url)} is {metadata.name}, not {name}", hint=f"write '{metadata.name} @ {redact(url)}'"
            )
        return metadata

    def tree(self, name: str, url: str) -> Tree | None:
        """The source tree at a URL; None if a file is there."""
        return self._tree(name, url).tree if file_at(url) is None else None

    def file(self, url: str) -> IndexFile | None:
        """The file at a URL; one of this machine with its hash."""
        file = self.asked_for(url)
        return file and hashed(file)

    def asked_for(self, url: str) -> IndexFile | None:
        """The wheel or archive at a URL, as it is requested; None for a tree."""
        file = file_at(url)
        return structs.replace(file, url=self._client.without_login(file.url)) if file else None

    def opened(self, needs: Iterable[Need], environment: Environment) -> tuple[Need, ...]:
        """Needs with those of directories in place of the directories: a person can change what is written there."""
        found: list[Need] = []
        for need in needs:
            name, url, extras = canonicalize_name(need.requirement.name), need.requirement.url, need.requirement.extras
            if url is None or not url.startswith("file:") or file_at(url) is not None:
                found.append(need)
                continue
            for line in self.metadata(name, url).requires_dist:
                requirement = Requirement(line)
                if any(environment.wants(requirement.marker, extra) for extra in ("", *extras)):
                    requirement.marker = None
                    found.append(Need(requirement, name))
        return tuple(found)

    def _tree(self, name: str, url: str) -> Read:
        if url not in self._trees:
            from envsolve.packages.source_trees import read_tree  # child processes: not for a request without trees

            read = read_tree(name, url, offline=self._client.offline)
            if read.tree.unread is not None and _has_only_pure_wheels(name, self._client):
                read = structs.replace(read, tree=structs.replace(read.tree, needs_torch=False))
            self._trees[url] = read
        return self._trees[url]


def _has_only_pure_wheels(name: str, client: IndexClient) -> bool:
    """Whether the newest release of a project compiles nothing, so that its repository is not expected to either."""
    try:
        listing = client.listing(name)
    except IndexUnavailableError:
        return False
    releases = ([f.filename for f in listing.files(place)] for place in reversed(range(len(listing.versions))))
    wheels = next((found for files in releases if (found := [f for f in files if f.endswith(".whl")])), [])
    return bool(wheels) and all(wheel.endswith("-none-any.whl") for wheel in wheels)


def _readable(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return UNREAD


def file_at(url: str) -> IndexFile | None:
    """The wheel or sdist that a URL names; None for a version-control URL or a directory."""
    address, fragment = urldefrag(url)
    filename = unquote(urlsplit(address).path.rsplit("/", 1)[-1])
    if url.startswith(("git+", "hg+", "svn+", "bzr+")) or not filename.endswith((".whl", ".tar.gz", ".zip")):
        return None
    algorithm, _, digest = fragment.partition("=")
    hashes = {algorithm: digest} if algorithm in ("sha256", "sha384", "sha512") and digest else {}
    return IndexFile(filename, address, "", hashes)


def version_at(url: str) -> Version:
    """The version in the URL's file name; :data:`UNREAD` where it has none."""
    file = file_at(url)
    if file is None:
        return UNREAD
    try:
        if file.filename.endswith(".whl"):
            return parse_wheel_filename(file.filename)[1]
        return parse_sdist_filename(file.filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return UNREAD
