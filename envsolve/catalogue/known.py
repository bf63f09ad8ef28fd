"""Reading the METADATA of the newest wheels of packages: what plans can then do without asking for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envsolve.catalogue.model import Evidence, KnownMetadata
from envsolve.catalogue.refresh import Index, PublishedFile, Release, canonical_requirement, each
from envsolve.errors import IndexUnavailableError

#: Releases of a package that are read, pre-releases aside: plans take the newest, or one of those before it.
NEWEST = 3
# CPython with the ordinary GIL, and wheels for several Pythons, on the systems that plans are for.
_PYTHON = re.compile(r"cp31[0-4]|py3\d*")
_PLATFORM = re.compile(r"manylinux\w*_(x86_64|aarch64)|win_amd64|any")


def newest_metadata(
    index: Index, packages: Mapping[str, Collection[str]], source: str, wanted: Callable[[Release], bool]
) -> list[KnownMetadata]:
    """What the wheels of the newest releases of packages say, one record for those of a version that say the same.

    Args:
        packages: Normalised names, each with the versions that are read besides; a name that the index lacks has none.
        source: Key of the records' source.
        wanted: Leaves releases out.

    Raises:
        IndexUnavailableError: The index fails.
    """

    def of_package(package: str) -> list[KnownMetadata]:
        found = _releases(package, index.project(package))
        final = [release.version for release in found if not release.version.is_prerelease]
        versions = {*sorted(final)[-NEWEST:], *map(Version, packages[package])}
        read = (_read(index, r, source) for r in found if r.version in versions and wanted(r))
        return [record for records in read for record in records]

    return [record for records in each(of_package, sorted(packages)) for record in records]


def _releases(package: str, files: Iterable[PublishedFile]) -> list[Release]:
    """One for all wheels of a version that plans may take, by file name."""
    found: dict[Version, dict[str, PublishedFile]] = {}
    for file in files:
        try:
            _, version, _, tags = parse_wheel_filename(file.filename)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        if file.yanked is None and any(map(_serves, tags)):
            found.setdefault(version, {})[file.filename] = file
    return [Release(package, version, "", "", some, None) for version, some in found.items()]


def _serves(tag: Tag) -> bool:
    python = _PYTHON.fullmatch(tag.interpreter) and not tag.abi.endswith("t")
    return bool((python or tag.abi == "abi3") and _PLATFORM.fullmatch(tag.platform))


def _read(index: Index, release: Release, source: str) -> list[KnownMetadata]:
    """Files without a hash, and those whose METADATA cannot be read, are left out."""
    said: dict[tuple[tuple[str, ...], str | None, tuple[str, ...]], set[str]] = {}
    for file in release.files.values():
        digest = file.hashes.get("sha256")
        if digest is None:
            continue
        try:
            meta = index.metadata(file)
        except IndexUnavailableError:
            continue
        requires = tuple(map(canonical_requirement, meta.requires_dist))
        said.setdefault((requires, meta.requires_python, meta.provides_extra), set()).add(digest)
    return [
        KnownMetadata(
            release.package,
            str(release.version),
            tuple(sorted(digests)),
            Evidence.MEASURED,
            source,
            requires,
            requires_python,
            extras,
        )
        for (requires, requires_python, extras), digests in said.items()
    ]


def known_order(record: KnownMetadata) -> tuple[str, Version, tuple[str, ...]]:
    """Sort key: package, version, hashes."""
    return record.package, Version(record.version), record.sha256
