"""METADATA, PKG-INFO and requires.txt texts into ``CoreMetadata``. Pure."""

from __future__ import annotations

import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import IO

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.packages.model import CoreMetadata

# Requirement and specifier texts of old packages, repaired where the meaning is plain, dropped where it is not.


# ">=3.6.*" was accepted before PEP 440 was enforced and was read as ">=3.6".
_STAR_AFTER_ORDER = re.compile(r"((?:>=|<=|~=|>|<)\s*[0-9][0-9A-Za-z.!]*?)\.\*")


@lru_cache(maxsize=4096)
def specifier_text(text: str | None) -> str | None:
    """A ``Requires-Python`` text that packaging accepts; None for one that says nothing usable (pip ignores those)."""
    if text is None or not text.strip():
        return None
    for candidate in (text.strip(), _repair(text.strip())):
        try:
            SpecifierSet(candidate)
        except InvalidSpecifier:
            continue
        return candidate
    return None


def requirement_text(line: str) -> str | None:
    """A ``Requires-Dist`` line that packaging accepts, or None where it cannot be read."""
    line = " ".join(line.split())
    for candidate in (line, _repair(line)):
        try:
            Requirement(candidate)
        except InvalidRequirement:
            continue
        return candidate
    return None


def _repair(text: str) -> str:
    requirement, semicolon, marker = text.partition(";")
    return _STAR_AFTER_ORDER.sub(r"\1", requirement) + semicolon + marker


_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_SECTION = re.compile(r"\[(?P<extra>[^:\]]*)(?::(?P<marker>[^\]]*))?\]$")


def parse_metadata(text: bytes, *, sdist: bool = False) -> CoreMetadata:
    """The resolver's part of a core-metadata text.

    A wheel's METADATA is exact. An sdist's PKG-INFO is exact from Metadata-Version 2.2 on unless it lists
    ``Requires-Dist`` (or what gates it) as ``Dynamic`` (PEP 643); before 2.2 it is only the best guess.

    Raises:
        ValueError: It has no name or no version.
    """
    from packaging.metadata import parse_email  # imports the email package: not for a run that the cache answers

    # The description that follows the headers is long and says nothing to a resolver.
    raw, unparsed = parse_email(_BLANK_LINE.split(text, maxsplit=1)[0] + b"\n\n")
    name, version = raw.get("name"), raw.get("version")
    if not name or not version:
        raise ValueError("it names no project or no version")
    # A line in another encoding than UTF-8 puts the whole field among the unparsed.
    lines = raw.get("requires_dist") or unparsed.get("requires-dist", [])
    requires_python = raw.get("requires_python") or next(iter(unparsed.get("requires-python", [])), None)
    return CoreMetadata(
        name=name.strip(),
        version=version.strip(),
        requires_dist=tuple(r for r in map(requirement_text, lines) if r is not None),
        requires_python=specifier_text(requires_python),
        provides_extra=tuple(e.strip() for e in raw.get("provides_extra", [])),
        exact=not sdist or _is_static(raw.get("metadata_version", "1.0"), raw.get("dynamic", [])),
    )


def _is_static(version: str, dynamic: list[str]) -> bool:
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    return numbers >= (2, 2) and "requires-dist" not in {d.strip().lower() for d in dynamic}


def parse_requires_txt(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Setuptools' ``requires.txt`` (its own format of sections) as ``Requires-Dist`` lines, and the extras it names."""
    lines: list[str] = []
    extras: list[str] = []
    condition = ""
    for line in (raw.strip() for raw in text.splitlines()):
        if section := _SECTION.match(line):
            extra, marker = section["extra"].strip(), (section["marker"] or "").strip()
            if extra and extra not in extras:
                extras.append(extra)
            parts = [f"({marker})"] * bool(marker) + [f"extra == '{extra}'"] * bool(extra)
            condition = " and ".join(parts)
        elif line and not line.startswith("#"):
            requirement = requirement_text(f"{line} ; {condition}" if condition else line)
            if requirement is not None:
                lines.append(requirement)
    return tuple(lines), tuple(extras)


# Finding members in a zip archive by the bytes of its table of contents.
#
# ``zipfile`` makes an object of every member; a large wheel has twenty thousand, and a resolver wants one of them.
# What
# is odd about an archive (a comment, zip64, bytes in front) is left to ``zipfile``.
#
# Layout: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3.7, 4.3.12, 4.3.16.


_END, _END_MAGIC = struct.Struct("<4s4H2LH"), b"PK\x05\x06"
_ENTRY, _ENTRY_MAGIC = struct.Struct("<4s6H3L5H2L"), b"PK\x01\x02"
_LOCAL, _LOCAL_MAGIC = struct.Struct("<4s5H3L2H"), b"PK\x03\x04"
_ABOVE = 0xFFFFFFFF  # what stands in place of a number that only zip64 can hold


class Member(Struct, frozen=True):
    """One file in an archive.

    Attributes:
        name: With its folders.
        size: Bytes, uncompressed.
    """

    name: str
    size: int
    crc: int
    method: int
    stored: int
    offset: int

    def read(self, file: IO[bytes]) -> bytes:
        """Its bytes.

        Raises:
            zipfile.BadZipFile, zlib.error, NotImplementedError: It is damaged, or compressed in an unusual way.
        """
        file.seek(self.offset)
        local = file.read(_LOCAL.size)
        if len(local) < _LOCAL.size or not local.startswith(_LOCAL_MAGIC):
            raise zipfile.BadZipFile(f"{self.name} is not where the table of contents says")
        *_, name, extra = _LOCAL.unpack(local)
        file.seek(self.offset + _LOCAL.size + name + extra)
        data = file.read(self.stored)
        if self.method == zipfile.ZIP_DEFLATED:
            data = zlib.decompressobj(-15).decompress(data, self.size + 1)
        elif self.method != zipfile.ZIP_STORED:
            raise NotImplementedError(f"{self.name} is compressed by method {self.method}")
        if len(data) != self.size or zlib.crc32(data) != self.crc:
            raise zipfile.BadZipFile(f"{self.name} is damaged")
        return data


def members_ending(file: IO[bytes], suffix: str) -> list[Member]:
    """The members whose names end so, in the order of the table of contents.

    Raises:
        zipfile.BadZipFile: It is no archive.
    """
    directory = _directory(file)
    found = None if directory is None else list(_found(directory, suffix.encode()))
    if found is None or any(_ABOVE in (member.size, member.stored, member.offset) for member in found):
        with zipfile.ZipFile(file) as archive:
            return [
                Member(i.filename, i.file_size, i.CRC, i.compress_type, i.compress_size, i.header_offset)
                for i in archive.infolist()
                if i.filename.endswith(suffix)
            ]
    return found


def _directory(file: IO[bytes]) -> bytes | None:
    """The table of contents; None where it takes a closer look."""
    size = file.seek(0, os.SEEK_END)
    if size < _END.size:
        return None
    file.seek(size - _END.size)
    magic, disk, first_disk, here, total, length, start, comment = _END.unpack(file.read(_END.size))
    if magic != _END_MAGIC or comment or disk or first_disk or here != total or start + length != size - _END.size:
        return None
    file.seek(start)
    directory = file.read(length)
    return directory if directory.startswith(_ENTRY_MAGIC) else None


def _found(directory: bytes, suffix: bytes) -> Iterator[Member]:
    end = 0
    while (place := directory.find(suffix, end)) >= 0:
        end = place + len(suffix)
        start = directory.rfind(_ENTRY_MAGIC, 0, place)
        if start < 0 or start + _ENTRY.size > place:
            continue
        entry = _ENTRY.unpack_from(directory, start)
        method, crc, stored, size, name, offset = (entry[i] for i in (4, 7, 8, 9, 10, 16))
        if start + _ENTRY.size + name == end:  # else it is amid a longer name, or in what comes behind one
            text = directory[start + _ENTRY.size : end].decode("utf-8", "replace")
            yield Member(text, size, crc, method, stored, offset)


# Finding the metadata inside a distribution file: METADATA of a wheel, PKG-INFO of a source archive.


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
