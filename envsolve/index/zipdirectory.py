"""Finding members in a zip archive by the bytes of its table of contents.

``zipfile`` makes an object of every member; a large wheel has twenty thousand, and a resolver wants one of them. What
is odd about an archive (a comment, zip64, bytes in front) is left to ``zipfile``.

Layout: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3.7, 4.3.12, 4.3.16.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from msgspec import Struct

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
