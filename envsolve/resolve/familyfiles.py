"""From a build that the catalogue describes to the file that its index serves."""

from __future__ import annotations

from urllib.parse import quote

from packaging.specifiers import SpecifierSet

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Build, IndexPlace
from envsolve.compat.flavour import ANY
from envsolve.compat.platform import python_tag
from envsolve.compat.versions import minor
from envsolve.errors import IndexUnavailableError
from envsolve.index.client import IndexClient
from envsolve.index.model import IndexFile


class BuildGoneError(Exception):
    """An index was reached and no longer lists a file that the catalogue knows."""

    def __init__(self, filename: str) -> None:
        super().__init__(filename)
        self.filename = filename


def _first(specifier: str | None) -> str:
    """The version in a specifier of one: ``2.8`` of ``==2.8.*``."""
    return next(iter(SpecifierSet(specifier or "==0.0"))).version.removesuffix(".*")


class FamilyFiles:
    """Looks up the files of family builds, each on the one index that its build names."""

    def __init__(self, client: IndexClient, catalogue: Catalogue, python: str) -> None:
        self._client = client
        self._catalogue = catalogue
        self._python = python

    def index_of(self, build: Build) -> str | None:
        """Address of the build's index; None for the default one."""
        place = self._catalogue.indexes.get(build.index)
        # What goes with any flavour stands where the CPU builds do: see Family.
        return place.url.format(variant="cpu" if build.variant == ANY else build.variant) if place else None

    def file(self, build: Build) -> IndexFile:
        """The file as its index lists it.

        Raises:
            IndexUnavailableError: The index cannot be reached.
            BuildGoneError: It was reached and does not list the file.
        """
        filename = self.filename(build)
        file = self._client.listing(build.package, self.index_of(build)).named(filename)
        if file is None:
            raise BuildGoneError(filename)
        return file

    def from_catalogue(self, build: Build) -> IndexFile:
        """The file as the catalogue knows it, for an index out of reach; the address follows the index's scheme."""
        tag = python_tag(build.pythons, self._python) or build.pythons[0]
        filename = build.filename(tag)
        fact = build.files.get(tag)
        hashes = {"sha256": fact.sha256} if fact and fact.sha256 else {}
        index = self.index_of(build)
        url = f"{index.rstrip('/')}/{quote(filename)}" if index else ""
        return IndexFile(filename, url, index or "", hashes, build.requires_python, size=fact.size if fact else None)

    def known(self, build: Build) -> tuple[IndexFile, IndexUnavailableError | None]:
        """The listed file or, where the index cannot be reached, the catalogue's word and the failure.

        Raises:
            BuildGoneError: Its index, or the page that links to it, does not list it; or that page cannot be read.
        """
        place = self._catalogue.indexes.get(build.index)
        if place is not None and place.kind != "simple":
            return self._off_index(build, place), None
        try:
            return self.file(build), None
        except IndexUnavailableError as failure:
            return self.from_catalogue(build), failure

    def _off_index(self, build: Build, place: IndexPlace) -> IndexFile:
        """A file that no installer finds by its name: at the address of its release, or where a page of links says."""
        filename = self.filename(build)
        fact = build.files.get(python_tag(build.pythons, self._python) or build.pythons[0])
        hashes = {"sha256": fact.sha256} if fact and fact.sha256 else {}
        words = {
            "torch": ".".join(map(str, minor(_first(build.torch)))),
            "variant": build.variant,
            "tag": place.tags.get(build.version, f"v{build.version}"),
            "filename": quote(filename),
        }
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
