"""Candidates of ordinary packages: the files of the default index, filtered for the environment, best first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.index.client import IndexClient
from envsolve.index.model import IndexFile
from envsolve.resolve.cutoff import too_late
from envsolve.resolve.environment import Environment
from envsolve.resolve.kept import Kept, in_front

_SDIST = re.compile(r"\.(?:tar\.gz|zip|tar\.bz2|tgz)$")


@dataclass
class Pool:
    """What the indexes offer of each ordinary package, for one environment or for several that share versions.

    Attributes:
        environment: The one whose files are chosen.
        digests: Per package, the only files that may be taken, as ``sha256:...``; a package not named may be any file.
        others: Environments in which the same version must have a file, too.
        cutoff: First instant that is too late (:func:`cutoff_of`).
        prereleases: Whether pre-releases are wanted even where no specifier names one.
        kept: Versions to stay with.
    """

    client: IndexClient
    environment: Environment
    digests: Mapping[str, frozenset[str]]
    others: tuple[Environment, ...] = ()
    cutoff: str | None = None
    prereleases: bool = False
    kept: Kept = field(default_factory=dict)
    _versions: dict[str, list[tuple[Version, list[IndexFile]]]] = field(default_factory=dict)
    _chosen: dict[tuple[str, Version], IndexFile | None] = field(default_factory=dict)
    _takes: dict[tuple[str, Specifier], frozenset[int]] = field(default_factory=dict)

    def exists(self, name: str) -> bool:
        """Whether any index lists a file of the project that can be read at all."""
        return bool(self._sorted_versions(name))

    def versions(self, name: str) -> list[Version]:
        """Every version listed, newest first, whether or not it suits the environment."""
        return [version for version, _ in self._sorted_versions(name)]

    def candidates(self, name: str, specifier: SpecifierSet) -> Iterator[tuple[Version, IndexFile]]:
        """Versions that the specifier takes, those kept first, then the newest, yanked ones last; with the best file.

        A wheel that runs here goes before an sdist. Pre-releases appear only on request, or where a project has
        published nothing else.
        """
        published = self._sorted_versions(name)
        allowed = self._stable_or_wanted(name, specifier)
        for single in specifier:
            allowed &= self._accepted(name, single)
        withdrawn: list[tuple[Version, IndexFile]] = []
        listed = [published[place] for place in sorted(allowed)]
        for version, files in in_front(listed, self.kept.get(name, ()), lambda pair: pair[0]):
            if (name, version) not in self._chosen:
                everywhere = all(_best(files, other) for other in self.others)
                self._chosen[name, version] = _best(files, self.environment) if everywhere else None
            file = self._chosen[name, version]
            if file is None:
                continue
            if file.yanked is None:
                yield version, file
            else:
                withdrawn.append((version, file))
        yield from withdrawn

    def _stable_or_wanted(self, name: str, specifier: SpecifierSet) -> frozenset[int]:
        """Places, in the order of versions, that are no pre-releases; all where those are wanted or the only ones."""
        every = self._sorted_versions(name)
        stable = frozenset(place for place, (version, _) in enumerate(every) if not version.is_prerelease)
        wanted = self.prereleases or bool(specifier.prereleases) or not stable
        return frozenset(range(len(every))) if wanted else stable

    def _accepted(self, name: str, single: Specifier) -> frozenset[int]:
        """Places of the versions that one specifier takes; backtracking asks the same of them thousands of times."""
        if (name, single) not in self._takes:
            self._takes[name, single] = frozenset(
                place
                for place, (version, _) in enumerate(self._sorted_versions(name))
                if single.contains(version, prereleases=True)
            )
        return self._takes[name, single]

    def _sorted_versions(self, name: str) -> list[tuple[Version, list[IndexFile]]]:
        if name not in self._versions:
            groups: dict[str, list[IndexFile]] = {}
            for file in self.client.project(name):
                version = version_in(file.filename, name)
                listed = version is not None and not too_late(file.upload_time, self.cutoff)
                if version is not None and listed and taken(file, self.digests.get(name)):
                    groups.setdefault(version, []).append(file)
            pairs = [(parsed, files) for text, files in groups.items() if (parsed := _version(text)) is not None]
            self._versions[name] = sorted(pairs, key=lambda pair: pair[0], reverse=True)
        return self._versions[name]


def taken(file: IndexFile, digests: frozenset[str] | None) -> bool:
    """Whether a file is one of those that a requirement file lists by hash; any is, where it lists none."""
    return not digests or any(f"{algorithm}:{digest}" in digests for algorithm, digest in file.hashes.items())


def version_in(filename: str, name: str) -> str | None:
    """The version part of a wheel's or sdist's file name; None where the name has neither form."""
    if filename.endswith(".whl"):
        parts = filename.split("-", 2)
        return parts[1] if len(parts) == 3 else None
    stem = _SDIST.sub("", filename)
    if stem == filename:
        return None
    # The project's name may itself hold dashes in old sdists, so its length decides where the version starts.
    for cut in (i for i, char in enumerate(stem) if char == "-"):
        if canonicalize_name(stem[:cut]) == name:
            return stem[cut + 1 :]
    return None


def _best(files: list[IndexFile], environment: Environment) -> IndexFile | None:
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


@lru_cache(maxsize=65536)
def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


@lru_cache(maxsize=4096)
def _python_allowed(requires_python: str | None, python: str) -> bool:
    if not requires_python:
        return True
    try:
        return SpecifierSet(requires_python).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True
