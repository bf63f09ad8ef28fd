"""CUDA fat binaries: which machine code and PTX a file carries, read from headers alone.

A fat binary is a container with magic ``0xBA55ED50`` (u32 magic, u16 version 1, u16 header size, u64 size of what
follows) and then entries. An entry's header, little-endian: u16 kind (1 PTX, 2 cubin), u16, u32 header size, u64
payload size, u32 compressed size, u32, u16 minor, u16 major (the PTX ISA, for PTX), u32 arch, u32, u32, u64 flags. The
payload may be compressed (flags ``0x2000`` LZ4, ``0x8000`` zstd); the header never is. Flag bit 20 marks arch-specific
code (``sm_90a``), bit 21 family-specific code (``sm_100f``), on PTX and cubins alike. Layout and bits were read from
the output of ``fatbinary`` 13.0 and 13.5 for known inputs; a cubin's own ELF flags do not tell ``sm_100a`` from
``sm_100``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import IO

MAGIC = struct.pack("<I", 0xBA55ED50)
# The only version there is; looking for both passes over most of the magic numbers that occur by chance.
_START = MAGIC + struct.pack("<H", 1)
_CONTAINER = struct.Struct("<4sHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_ARCH_SPECIFIC = 1 << 20
_FAMILY_SPECIFIC = 1 << 21
_LARGEST = 1 << 40
_CHUNK = 1 << 20
# A translation unit has one for each GPU that it is compiled for, or two.
_MOST_ENTRIES = 1 << 12


class Kind(str, Enum):
    """What an entry holds."""

    PTX = "ptx"
    SASS = "sass"
    OTHER = "other"


_KINDS = {1: Kind.PTX, 2: Kind.SASS}


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """One piece of device code.

    Attributes:
        arch: ``sm_90a`` or, for PTX, ``compute_90``.
        ptx_isa: PTX version, ``8.7``; None for anything but PTX.
    """

    kind: Kind
    arch: str
    ptx_isa: str | None


def fat_binaries(data: bytes | bytearray | memoryview) -> tuple[FatbinEntry, ...]:
    """Every entry of every fat binary in ``data``, in file order."""
    return tuple(scan(io.BytesIO(data)))


def scan(stream: IO[bytes]) -> Iterator[FatbinEntry]:
    """Every entry of every fat binary from the stream's position on, in file order, in bounded memory."""
    for entries in containers(stream):
        yield from entries


def containers(stream: IO[bytes]) -> Iterator[tuple[FatbinEntry, ...]]:
    """The entries of each fat binary from the stream's position on, in file order; one translation unit makes one.

    What does not hold together (a wrong size, a truncated file) ends the container it stands in and is no error: magic
    numbers occur in data by chance.

    Args:
        stream: Seekable; payloads are skipped, not read.
    """
    window = _Window(stream)
    while window.find(_START):
        header = window.peek(_CONTAINER.size)
        if len(header) < _CONTAINER.size:
            return
        _, _, header_size, size = _CONTAINER.unpack(header)
        if header_size >= _CONTAINER.size and size < _LARGEST:
            window.skip(header_size)
            yield tuple(islice(_entries(window, size), _MOST_ENTRIES))
        else:
            window.skip(len(MAGIC))


def _entries(window: _Window, remaining: int) -> Iterator[FatbinEntry]:
    while remaining >= _ENTRY.size:
        header = window.peek(_ENTRY.size)
        if len(header) < _ENTRY.size:
            return
        kind, _, header_size, payload, _, _, minor, major, arch, _, _, flags = _ENTRY.unpack(header)
        length = header_size + payload
        if header_size < _ENTRY.size or length > remaining or not 10 <= arch <= 999:
            return
        yield _entry(kind, arch, flags, f"{major}.{minor}")
        window.skip(length)
        remaining -= length


def _entry(kind: int, arch: int, flags: int, isa: str) -> FatbinEntry:
    what = _KINDS.get(kind, Kind.OTHER)
    suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
    prefix = "compute" if what is Kind.PTX else "sm"
    return FatbinEntry(what, f"{prefix}_{arch}{suffix}", isa if what is Kind.PTX else None)


class _Window:
    """A forward-only view of a stream that holds one chunk of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._buffer = b""
        self._at = 0

    def peek(self, count: int) -> bytes:
        """The next ``count`` bytes, or fewer at the end, without moving."""
        while len(self._buffer) - self._at < count and (more := self._stream.read(_CHUNK)):
            self._buffer = self._buffer[self._at :] + more
            self._at = 0
        return self._buffer[self._at : self._at + count]

    def skip(self, count: int) -> None:
        """Move ahead, past the end if it must be."""
        held = len(self._buffer) - self._at
        if count <= held:
            self._at += count
        else:
            self._stream.seek(count - held, io.SEEK_CUR)
            self._buffer, self._at = b"", 0

    def find(self, needle: bytes) -> bool:
        """Move to the next ``needle``; False where there is none."""
        while True:
            self.peek(len(needle))
            found = self._buffer.find(needle, self._at)
            if found >= 0:
                self._at = found
                return True
            if len(self._buffer) - self._at < len(needle):
                return False
            self._at = len(self._buffer) - len(needle) + 1
