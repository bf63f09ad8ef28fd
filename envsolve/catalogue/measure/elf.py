"""The little of ELF that measuring needs: the machine, and the libraries that the loader must find.

Layout: System V gABI, 64-bit little-endian, the only class and order that CUDA supports.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import IO

from envsolve.errors import UsageError

MAGIC = b"\x7fELF"
_IDENT = MAGIC + b"\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_LOAD, _DYNAMIC_SEGMENT = 1, 2
_NULL, _NEEDED, _STRTAB = 0, 1, 5
_MACHINES = {62: "x86_64", 183: "aarch64", 190: "cuda"}
_LARGEST_DYNAMIC = 1 << 20
_LONGEST_NAME = 512


@dataclass(frozen=True, slots=True)
class Elf:
    """The machine (``x86_64``, ``aarch64``, else ``elf-machine-N``) and the NEEDED entries, in file order."""

    machine: str
    needed: tuple[str, ...]


def read_elf(file: IO[bytes], name: str) -> Elf:
    """Read the headers and the dynamic section.

    Args:
        file: Seekable.
        name: For messages.

    Raises:
        UsageError: Not a 64-bit little-endian ELF file, or cut off.
    """
    header = _at(file, 0, _HEADER.size, name)
    if not header.startswith(_IDENT):
        raise UsageError(f"{name} is not a 64-bit little-endian ELF file")
    fields = _HEADER.unpack(header)
    machine, offset, entry_size, count = fields[2], fields[5], fields[9], fields[10]
    if count and entry_size != _SEGMENT.size:
        raise UsageError(f"{name} is damaged: its program headers are {entry_size} bytes long")
    segments = list(_SEGMENT.iter_unpack(_at(file, offset, count * _SEGMENT.size, name)))
    return Elf(_MACHINES.get(machine, f"elf-machine-{machine}"), _needed(file, segments, name))


def _needed(file: IO[bytes], segments: list[tuple[int, ...]], name: str) -> tuple[str, ...]:
    dynamic = next((s for s in segments if s[0] == _DYNAMIC_SEGMENT), None)
    if dynamic is None:
        return ()
    size = min(dynamic[5], _LARGEST_DYNAMIC)
    offsets: list[int] = []
    table: int | None = None
    for tag, value in _DYNAMIC.iter_unpack(_at(file, dynamic[2], size - size % _DYNAMIC.size, name)):
        if tag == _NULL:
            break
        if tag == _NEEDED:
            offsets.append(value)
        elif tag == _STRTAB:
            table = value
    base = _file_offset(segments, table)
    if base is None:
        return ()
    return tuple(_string(file, base + offset, name) for offset in offsets)


def _file_offset(segments: list[tuple[int, ...]], address: int | None) -> int | None:
    if address is None:
        return None
    for kind, _, offset, start, _, size, _, _ in segments:
        if kind == _LOAD and start <= address < start + size:
            return offset + address - start
    return None


def _string(file: IO[bytes], offset: int, name: str) -> str:
    text, end, _ = _read(file, offset, _LONGEST_NAME).partition(b"\0")
    if not end:
        raise UsageError(f"{name} is damaged: a library name does not end")
    return text.decode("utf-8", "replace")


def _at(file: IO[bytes], offset: int, count: int, name: str) -> bytes:
    data = _read(file, offset, count)
    if len(data) < count:
        raise UsageError(f"{name} is no ELF file, or is cut off after {offset + len(data)} bytes")
    return data


def _read(file: IO[bytes], offset: int, count: int) -> bytes:
    if offset >= 1 << 63:
        return b""
    file.seek(offset)
    return file.read(count)
