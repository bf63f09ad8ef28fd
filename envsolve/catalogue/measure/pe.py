"""The little of PE/COFF that measuring needs: the machine, and the DLLs that Windows must find.

Layout: Microsoft's PE format, PE32+ (64-bit) images, the only ones that CUDA supports on Windows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from envsolve.errors import UsageError

MAGIC = b"MZ"
_SIGNATURE = b"PE\0\0"
_COFF = struct.Struct("<HHIIIHH")
_PE32_PLUS = 0x20B
_DIRECTORIES_AT = 112
_DIRECTORY = struct.Struct("<II")
_SECTION = struct.Struct("<8sIIII16x")
_IMPORT, _DELAY_IMPORT = 1, 13
# Sizes of one descriptor, and where in it the address of the DLL's name stands.
_DESCRIPTORS = {_IMPORT: (20, 12), _DELAY_IMPORT: (32, 4)}
_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}
_MOST_DLLS = 4096
_LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class Pe:
    """The machine (``x86_64``, ``aarch64``, else ``pe-machine-N``), and the DLLs it imports, at once or when called."""

    machine: str
    needed: tuple[str, ...]


def read_pe(file: IO[bytes], name: str) -> Pe:
    """Read the headers and the import tables; those of 32-bit images are not read.

    Args:
        file: Seekable.
        name: For messages.

    Raises:
        UsageError: Not a PE image, or cut off.
    """
    start = struct.unpack("<I", _at(file, 60, 4, name))[0]
    head = _at(file, start, len(_SIGNATURE) + _COFF.size, name)
    if not head.startswith(_SIGNATURE):
        raise UsageError(f"{name} is no Windows library: it has no PE signature")
    machine, sections, _, _, _, optional_size, _ = _COFF.unpack_from(head, len(_SIGNATURE))
    at = start + len(head)
    optional = _at(file, at, optional_size, name)
    if len(optional) < _DIRECTORIES_AT or struct.unpack_from("<H", optional)[0] != _PE32_PLUS:
        return Pe(_MACHINES.get(machine, f"pe-machine-{machine}"), ())
    table = list(_SECTION.iter_unpack(_at(file, at + optional_size, sections * _SECTION.size, name)))
    found: dict[str, None] = {}
    for number, (size, name_at) in _DESCRIPTORS.items():
        place = _DIRECTORIES_AT + number * _DIRECTORY.size
        if place + _DIRECTORY.size <= len(optional):
            address = _DIRECTORY.unpack_from(optional, place)[0]
            found.update(dict.fromkeys(_names(file, table, address, size, name_at, name)))
    return Pe(_MACHINES.get(machine, f"pe-machine-{machine}"), tuple(found))


def _names(
    file: IO[bytes], sections: list[tuple[bytes, int, int, int, int]], address: int, size: int, name_at: int, name: str
) -> Iterator[str]:
    """The DLLs of one import table, which ends with an empty descriptor."""
    start = _file_offset(sections, address) if address else None
    if start is None:
        return
    for number in range(_MOST_DLLS):
        descriptor = _at(file, start + number * size, size, name)
        pointer = _file_offset(sections, struct.unpack_from("<I", descriptor, name_at)[0])
        if pointer is None:
            return
        text, end, _ = _read(file, pointer, _LONGEST_NAME).partition(b"\0")
        if not end:
            raise UsageError(f"{name} is damaged: a DLL's name does not end")
        yield text.decode("ascii", "replace")


def _file_offset(sections: list[tuple[bytes, int, int, int, int]], address: int) -> int | None:
    for _, virtual_size, start, raw_size, offset in sections:
        if start and start <= address < start + max(virtual_size, raw_size):
            return offset + address - start
    return None


def _at(file: IO[bytes], offset: int, count: int, name: str) -> bytes:
    data = _read(file, offset, count)
    if len(data) < count:
        raise UsageError(f"{name} is no Windows library, or is cut off after {offset + len(data)} bytes")
    return data


def _read(file: IO[bytes], offset: int, count: int) -> bytes:
    file.seek(offset)
    return file.read(count)
