"""Candidates of ordinary packages: the files of the default index, filtered for the environment, best first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import Version

from envsolve.index.client import IndexClient
from envsolve.index.listing import Listing, read_version
from envsolve.index.model import IndexFile
from envsolve.machine.model import Machine
from envsolve.resolve.cutoff import too_late
from envsolve.resolve.environment import Environment
from envsolve.resolve.kept import Kept, in_front
from envsolve.resolve.walk import Walk

_SDIST = re.compile(r"\.(?:tar\.gz|zip|tar\.bz2|tgz)$")


class Pool(msgspec.Struct, eq=False):
    """What the indexes offer of each ordinary package, for one environment or for several that share versions.

    Attributes:
        environment: The one whose files are chosen.
        digests: Per package, the only files that may be taken, as ``sha256:...``; a package not named may be any file.
        others: Environments in which the same version must have a file, too.
        cutoff: First instant that is too late (:func:`cutoff_of`).
        prereleases: Whether pre-releases are wanted even where no specifier names one.
        kept: Versions to stay with.
        visited: How many versions of all packages were looked at for a file.
    """

    client: IndexClient
    environment: Environment
    digests: Mapping[str, frozenset[str]]
    others: tuple[Environment, ...] = ()
    cutoff: str | None = None
    prereleases: bool = False
    kept: Kept = {}
    visited: int = 0
    _listed: dict[str, tuple[Listing, Sequence[int]]] = {}
    _chosen: dict[tuple[str, int], IndexFile | None] = {}
    _takes: dict[tuple[str, Specifier], dict[int, bool]] = {}
    _walks: dict[tuple[str, SpecifierSet], Walk[tuple[Version, IndexFile]]] = {}

    def exists(self, name: str) -> bool:
        """Whether any index lists a file of the project that can be read at all."""
        return bool(self._published(name)[1])

    def versions(self, name: str) -> list[Version]:
        """Every version listed, newest first, whether or not it suits the environment."""
        listing, places = self._published(name)
        return [_version(listing, place) for place in places]

    def candidates(self, name: str, specifier: SpecifierSet) -> Iterator[tuple[Version, IndexFile]]:
        """Versions that the specifier takes, those kept first, then the newest, yanked ones last; with the best file.

        A wheel that runs here goes before an sdist. Pre-releases appear only on request, or where a project has
        published nothing else.
        """
        key = name, specifier
        if key not in self._walks:
            self._walks[key] = Walk(self._candidates(name, specifier))
        return iter(self._walks[key])

    def sources(self, name: str, specifier: SpecifierSet) -> Iterator[tuple[Version, IndexFile]]:
        """Versions that have a source distribution for the environment's Python, in the same order, with that file."""
        listing, _ = self._published(name)
        for place in self._taken(name, specifier):
            files = [f for f in listing.files(place) if self._may_be(name, f) and not f.filename.endswith(".whl")]
            file = _best(files, self.environment)
            if file is not None and file.yanked is None:
                yield _version(listing, place), file

    def served(self, name: str, specifier: SpecifierSet, python: str) -> bool:
        """Whether a version that the specifier takes has a file for another Python ``X.Y`` on the same platform."""
        other = Environment.of(Machine(platform=self.environment.platform), python)
        listing, places = self._published(name)
        fitting = (p for p in places if specifier.contains(_version(listing, p), prereleases=True))
        return any(_best([f for f in listing.files(p) if self._may_be(name, f)], other) for p in fitting)

    def _candidates(self, name: str, specifier: SpecifierSet) -> Iterator[tuple[Version, IndexFile]]:
        listing, _ = self._published(name)
        withdrawn: list[tuple[Version, IndexFile]] = []
        for place in self._taken(name, specifier):
            file = self._file(name, listing, place)
            if file is None:
                continue
            if file.yanked is None:
                yield _version(listing, place), file
            else:
                withdrawn.append((_version(listing, place), file))
        yield from withdrawn

    def _taken(self, name: str, specifier: SpecifierSet) -> Iterator[int]:
        """Places of the versions that a specifier takes, in the order of preference."""
        listing, places = self._published(name)
        wanted = self.prereleases or bool(specifier.prereleases) or listing.early.issuperset(places)
        singles = [(single, self._takes.setdefault((name, single), {})) for single in specifier]
        kept = self.kept.get(name, ())
        for place in in_front(places, kept, lambda place: _version(listing, place)):
            if wanted or place not in listing.early:
                for single, known in singles:
                    if place not in known:
                        known[place] = single.contains(_version(listing, place), prereleases=True)
                    if not known[place]:
                        break
                else:
                    yield place

    def _file(self, name: str, listing: Listing, place: int) -> IndexFile | None:
        """The best file of a version; None where it has none for every environment."""
        key = name, place
        if key not in self._chosen:
            self.visited += 1
            files = [file for file in listing.files(place) if self._may_be(name, file)]
            everywhere = all(_best(files, other) for other in self.others)
            self._chosen[key] = _best(files, self.environment) if everywhere else None
        return self._chosen[key]

    def _published(self, name: str) -> tuple[Listing, Sequence[int]]:
        """A project's page, and the places of its versions that have a file which may be taken, newest first."""
        if name not in self._listed:
            listing = self.client.listing(name)
            places: Sequence[int] = range(len(listing.versions) - 1, -1, -1)
            if self.cutoff is not None or name in self.digests:
                places = [p for p in places if any(self._may_be(name, file) for file in listing.files(p))]
            self._listed[name] = listing, places
        return self._listed[name]

    def _may_be(self, name: str, file: IndexFile) -> bool:
        return not too_late(file.upload_time, self.cutoff) and taken(file, self.digests.get(name))


def taken(file: IndexFile, digests: frozenset[str] | None) -> bool:
    """Whether a file is one of those that a requirement file lists by hash; any is, where it lists none."""
    return not digests or any(f"{algorithm}:{digest}" in digests for algorithm, digest in file.hashes.items())


def _version(listing: Listing, place: int) -> Version:
    version = read_version(listing.versions[place])
    assert version is not None  # others are not among the versions of a listing
    return version


def _best(files: Sequence[IndexFile], environment: Environment) -> IndexFile | None:
    """The most specific wheel, else an sdist; not yanked before yanked."""
    ranked = []
    for file in files:
        if not _python_allowed(file.requires_python, environment.full_version):
            continue
        wheel = file.filename.endswith(".whl")
        rank = environment.rank(file.filename) if wheel else None
        if rank is None and (wheel or not _SDIST.search(file.filename)):
            continue
        ranked.append(((file.yanked is not None, not wheel, rank or 0, file.filename), file))
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


@lru_cache(maxsize=4096)
def _python_allowed(requires_python: str | None, python: str) -> bool:
    if not requires_python:
        return True
    try:
        return SpecifierSet(requires_python).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True
