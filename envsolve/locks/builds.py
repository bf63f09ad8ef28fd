"""The catalogue's builds that a locked package may be, found by its file, or by its hash, version, index and system."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.version import InvalidVersion, Version

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.locks.model import Locked
from envsolve.rules.platform import Environment, same_system

_BUILD_NUMBER = re.compile(r"^([^-]+-[^-]+)-(\d+)[^-]*(-[^-]+-[^-]+-[^-]+)$")


def wheel_of(package: Locked, environment: Environment) -> str | None:
    """The wheel of a lock that an installer uses on a system; of two that fit equally the one with the newer build."""
    ranked = [(rank, file) for file in package.files if (rank := environment.rank(file)) is not None]
    if len(ranked) < 2:
        return ranked[0][1] if ranked else None
    least = min(rank for rank, _ in ranked)
    return max((file for rank, file in ranked if rank == least), key=lambda file: (_build_number(file), file))


def builds_of(
    package: Locked, catalogue: Catalogue, environment: Environment, variant: str | None = None
) -> Sequence[Build]:
    """The builds that a package is, more than one if the lock does not say which.

    Args:
        package: The package.
        catalogue: The facts.
        environment: The system and the Python.
        variant: That of the torch beside it, if it is known: some wheels hold a library for each of several variants,
            and load that of torch.
    """
    try:
        version = Version(package.version or "")
    except InvalidVersion:
        return ()
    found = _published(package, version, catalogue, environment)
    files = {file.sha256 for build in found for file in build.files.values()}
    if len(found) < 2 or not files or any(files != {f.sha256 for f in one.files.values()} for one in found):
        return found
    return [one for one in found if one.variant == variant] or [one for one in found if one.variant != "cpu"] or found


def _published(package: Locked, version: Version, catalogue: Catalogue, environment: Environment) -> Sequence[Build]:
    builds = (*catalogue.builds(package.name), *catalogue.builds_outside(package.name))
    same = [b for b in builds if _has_version(b, version) and same_system(b.made_for, environment.platform)]
    if file := wheel_of(package, environment):
        found = _named(same, file)
        return [build for build in found if _is_from(build, package.index, catalogue)] or found
    found = [b for b in same if not package.hashes.isdisjoint(f.sha256 for f in b.files.values())] or same
    here = [build for build in found if _is_from(build, package.index, catalogue)]
    # A mirror has what an index has; a wheel on a release page is not what an sdist becomes.
    return here or [build for build in found if _on_index(build, catalogue)]


def _named(builds: Sequence[Build], file: str) -> Sequence[Build]:
    """The builds of a file name; otherwise those that differ only in the build number."""
    found = [build for build in builds if any(build.filename(tag) == file for tag in build.pythons)]
    plain = _plain(file)
    return found or [build for build in builds if any(_plain(build.filename(tag)) == plain for tag in build.pythons)]


def _on_index(build: Build, catalogue: Catalogue) -> bool:
    place = catalogue.indexes.get(build.index)
    return place is None or place.kind == "simple"


def _has_version(build: Build, version: Version) -> bool:
    """Whether a build has a version; the local part of the version may state the variant."""
    local = version.local
    return build.version == version.public and (not local or local in (build.local.lstrip("+"), build.variant))


def _is_from(build: Build, index: str | None, catalogue: Catalogue) -> bool:
    """Whether a build is of the index that a lock names for a package."""
    place = catalogue.indexes.get(build.index)
    if index is None:
        return place is None and not build.local
    if place is None:
        return not any(_prefix(one.url) in index for one in catalogue.indexes.values())
    return _prefix(place.url) in index and (place.kind != "simple" or f"/{build.variant}" in index)


def _prefix(url: str) -> str:
    return url.partition("{")[0]


def _plain(wheel: str) -> str:
    """The name of a wheel without its build number."""
    return _BUILD_NUMBER.sub(r"\1\3", wheel)


def _build_number(wheel: str) -> int:
    number = _BUILD_NUMBER.match(wheel)
    return int(number[2]) if number else -1
