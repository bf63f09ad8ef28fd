"""Reading the METADATA of the newest wheels of packages: what plans can then do without asking for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from packaging.version import Version

from envsolve.catalogue.model import Evidence, KnownMetadata
from envsolve.catalogue.refresh import Index, PublishedFile, Release, canonical_requirement, each, releases
from envsolve.errors import IndexUnavailableError

#: Releases of a package that are read, pre-releases aside: plans take the newest, or one of those before it.
NEWEST = 3
# CPython 3.10 to 3.14 with the ordinary GIL, and wheels for several Pythons.
_PYTHONS = re.compile(r"cp31[0-4]|cp3\d+-abi3|py\d.*")


def newest_metadata(
    index: Index, packages: Iterable[str], source: str, wanted: Callable[[Release], bool]
) -> list[KnownMetadata]:
    """What the wheels of the newest releases of packages say.

    Args:
        packages: Normalised names; one that the index lacks has no releases.
        source: Key of the records' source.
        wanted: Leaves releases out.

    Raises:
        IndexUnavailableError: The index fails.
    """
    found = each(partial(_of_package, index, source, wanted), sorted(packages))
    return [record for records in found for record in records]


def _of_package(index: Index, source: str, wanted: Callable[[Release], bool], package: str) -> list[KnownMetadata]:
    found = [r for r in releases(index.project(package), "0") if not r.version.is_prerelease]
    newest = sorted({release.version for release in found})[-NEWEST:]
    files = [
        (str(release.version), file)
        for release in found
        if release.version in newest and wanted(release)
        for python, file in release.files.items()
        if _PYTHONS.fullmatch(python)
    ]
    return read_metadata(index, package, files, source)


def read_metadata(
    index: Index, package: str, files: Sequence[tuple[str, PublishedFile]], source: str
) -> list[KnownMetadata]:
    """One record for all wheels of a version that say the same; those that cannot be read are left out.

    Args:
        files: With their versions.
    """
    said: dict[tuple[str, tuple[str, ...], str | None, tuple[str, ...]], set[str]] = {}
    for version, file in files:
        digest = file.hashes.get("sha256")
        if digest is None:
            continue
        try:
            meta = index.metadata(file)
        except IndexUnavailableError:
            continue
        requires = tuple(map(canonical_requirement, meta.requires_dist))
        said.setdefault((version, requires, meta.requires_python, meta.provides_extra), set()).add(digest)
    return [
        KnownMetadata(package, version, tuple(sorted(digests)), Evidence.MEASURED, source, requires, python, extras)
        for (version, requires, python, extras), digests in said.items()
    ]


def known_order(record: KnownMetadata) -> tuple[str, Version, tuple[str, ...]]:
    """Sort key: package, version, files."""
    return record.package, Version(record.version), record.files
