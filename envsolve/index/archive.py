"""Finding the metadata inside a distribution file: METADATA of a wheel, PKG-INFO of a source archive."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from envsolve.index.metadata import parse_metadata, parse_requires_txt
from envsolve.index.model import CoreMetadata
from envsolve.index.zipdirectory import members_ending

_LARGEST_MEMBER = 16 * 1024 * 1024  # bytes; real ones have a few kilobytes
ARCHIVE_ERRORS = (ValueError, zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError)


def wheel_metadata(file: IO[bytes], filename: str) -> CoreMetadata:
    """The metadata of a wheel, read from the ``.dist-info`` that bears the wheel's name.

    Raises:
        ValueError or one of ARCHIVE_ERRORS: It is no wheel, or holds none.
    """
    found = [member for member in members_ending(file, ".dist-info/METADATA") if member.name.count("/") == 1]
    project = canonicalize_name(filename.partition("-")[0])
    own = [member for member in found if canonicalize_name(member.name.partition("-")[0]) == project] or found
    if len(own) != 1:
        raise ValueError(f"it holds {len(own)} METADATA files instead of one")
    if max(own[0].size, own[0].stored) > _LARGEST_MEMBER:
        raise ValueError("its METADATA is too large")
    return parse_metadata(own[0].read(file))


def sdist_metadata(file: IO[bytes], filename: str) -> CoreMetadata:
    """The metadata of a source archive, from its PKG-INFO.

    Reads a tar archive as a stream, no further than needed. Where PKG-INFO is not exact and lists no requirements,
    those of setuptools' ``requires.txt`` are the better guess.

    Raises:
        ValueError or one of ARCHIVE_ERRORS: It is no archive, or holds no PKG-INFO.
    """
    if filename.lower().endswith(".zip"):
        with zipfile.ZipFile(file) as archive:
            members = ((i.filename, archive.open(i), i.file_size) for i in archive.infolist() if _is_wanted(i.filename))
            return _from_members(members)
    with tarfile.open(fileobj=file, mode="r|*") as tar:
        return _from_members(_tar_members(tar))


def _tar_members(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes], int]]:
    for member in tar:
        name = member.name.removeprefix("./")
        if _is_wanted(name) and member.isfile():
            content = tar.extractfile(member)
            if content is not None:
                yield name, content, member.size


def _is_wanted(name: str) -> bool:
    folder, _, base = name.rpartition("/")
    return (base == "PKG-INFO" and folder.count("/") == 0 and folder != "") or name.endswith(".egg-info/requires.txt")


def _from_members(members: Iterable[tuple[str, IO[bytes], int]]) -> CoreMetadata:
    metadata: CoreMetadata | None = None
    requires: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    for name, content, size in members:
        if size > _LARGEST_MEMBER:
            raise ValueError(f"its {name} is too large")
        if name.endswith("PKG-INFO"):
            metadata = parse_metadata(content.read(), sdist=True)
        else:
            requires = parse_requires_txt(content.read().decode("utf-8", "replace"))
        if metadata is not None and (metadata.exact or metadata.requires_dist or requires is not None):
            break
    if metadata is None:
        raise ValueError("it holds no PKG-INFO")
    if metadata.exact or metadata.requires_dist or requires is None:
        return metadata
    return replace(metadata, requires_dist=requires[0], provides_extra=requires[1])
