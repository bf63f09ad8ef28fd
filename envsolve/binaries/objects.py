"""The little of ELF that measuring needs: the machine, and the libraries that the loader must find.

Layout: System V gABI, 64-bit little-endian, the only class and order that CUDA supports.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from envsolve.errors import UsageError

MAGIC = b"\x7fELF"
_IDENT = MAGIC + b"\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_LOAD, _DYNAMIC_SEGMENT = 1, 2
_NULL, _NEEDED, _STRTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 0, 1, 5, 10, 14, 15, 29
_MACHINES = {62: "x86_64", 183: "aarch64", 190: "cuda"}
_LARGEST_DYNAMIC = 1 << 20
_LONGEST_NAME = 4096
_LARGEST_STRINGS = 64 << 20


@dataclass(frozen=True, slots=True)
class Elf:
    """What the loader reads.

    Attributes:
        machine: ``x86_64``, ``aarch64``, else ``elf-machine-N``.
        needed: The NEEDED entries, in file order.
        soname: The name that others need it by.
        rpath: Folders that are searched before ``LD_LIBRARY_PATH`` (only where there is no ``runpath``).
        runpath: Folders that are searched after ``LD_LIBRARY_PATH``.
        end: Bytes that a file must have for all that is loaded from it; a shorter one is cut off.
    """

    machine: str
    needed: tuple[str, ...]
    soname: str | None = None
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    end: int = 0


def read_elf(file: IO[bytes], name: str) -> Elf:
    """Read the headers and the dynamic section.

    Args:
        file: Seekable.
        name: For messages.

    Raises:
        UsageError: Not a 64-bit little-endian ELF file, or cut off.
    """
    machine, segments = _segments(file, name)
    entries = list(_dynamic(file, segments, name))
    base = _file_offset(segments, dict(entries).get(_STRTAB))

    def strings(wanted: int) -> tuple[str, ...]:
        if base is None:
            return ()
        return tuple(_string(file, base + offset, name) for tag, offset in entries if tag == wanted)

    def folders(wanted: int) -> tuple[str, ...]:
        return tuple(folder for path in strings(wanted) for folder in path.split(":") if folder)

    return Elf(
        machine=_MACHINES.get(machine, f"elf-machine-{machine}"),
        needed=strings(_NEEDED),
        soname=next(iter(strings(_SONAME)), None),
        rpath=folders(_RPATH),
        runpath=folders(_RUNPATH),
        end=max((offset + size for kind, _, offset, _, _, size, _, _ in segments if kind == _LOAD), default=0),
    )


def dynamic_strings(file: IO[bytes], name: str) -> bytes:
    """The names that the loader sees, NUL-separated: of libraries, and of the symbols taken and given.

    Args:
        file: Seekable.
        name: For messages.

    Raises:
        UsageError: Not a 64-bit little-endian ELF file, or cut off.
    """
    segments = _segments(file, name)[1]
    entries = dict(_dynamic(file, segments, name))
    base = _file_offset(segments, entries.get(_STRTAB))
    return b"" if base is None else _read(file, base, min(entries.get(_STRSZ, 0), _LARGEST_STRINGS))


def _segments(file: IO[bytes], name: str) -> tuple[int, list[tuple[int, ...]]]:
    """The machine's number, and the program headers."""
    header = _at(file, 0, _HEADER.size, name)
    if not header.startswith(_IDENT):
        raise UsageError(f"{name} is not a 64-bit little-endian ELF file")
    fields = _HEADER.unpack(header)
    machine, offset, entry_size, count = fields[2], fields[5], fields[9], fields[10]
    if count and entry_size != _SEGMENT.size:
        raise UsageError(f"{name} is damaged: its program headers are {entry_size} bytes long")
    return machine, list(_SEGMENT.iter_unpack(_at(file, offset, count * _SEGMENT.size, name)))


def _dynamic(file: IO[bytes], segments: list[tuple[int, ...]], name: str) -> Iterator[tuple[int, int]]:
    """Tags and values of the dynamic section."""
    dynamic = next((s for s in segments if s[0] == _DYNAMIC_SEGMENT), None)
    if dynamic is None:
        return
    size = min(dynamic[5], _LARGEST_DYNAMIC)
    for tag, value in _DYNAMIC.iter_unpack(_at(file, dynamic[2], size - size % _DYNAMIC.size, name)):
        if tag == _NULL:
            return
        yield tag, value


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


# The little of PE/COFF that measuring needs: the machine, and the DLLs that Windows must find.
#
# Layout: Microsoft's PE format, PE32+ (64-bit) images, the only ones that CUDA supports on Windows.


PE_MAGIC = b"MZ"
_SIGNATURE = b"PE\0\0"
_COFF = struct.Struct("<HHIIIHH")
_PE32_PLUS = 0x20B
_DIRECTORIES_AT = 112
_DIRECTORY = struct.Struct("<II")
_SECTION = struct.Struct("<8sIIII16x")
_IMPORT, _DELAY_IMPORT = 1, 13
# Sizes of one descriptor, and where in it the address of the DLL's name stands.
_DESCRIPTORS = {_IMPORT: (20, 12), _DELAY_IMPORT: (32, 4)}
_PE_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}
_MOST_DLLS = 4096
_PE_LONGEST_NAME = 256


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
    start = struct.unpack("<I", _pe_at(file, 60, 4, name))[0]
    head = _pe_at(file, start, len(_SIGNATURE) + _COFF.size, name)
    if not head.startswith(_SIGNATURE):
        raise UsageError(f"{name} is no Windows library: it has no PE signature")
    machine, sections, _, _, _, optional_size, _ = _COFF.unpack_from(head, len(_SIGNATURE))
    at = start + len(head)
    optional = _pe_at(file, at, optional_size, name)
    if len(optional) < _DIRECTORIES_AT or struct.unpack_from("<H", optional)[0] != _PE32_PLUS:
        return Pe(_PE_MACHINES.get(machine, f"pe-machine-{machine}"), ())
    table = list(_SECTION.iter_unpack(_pe_at(file, at + optional_size, sections * _SECTION.size, name)))
    found: dict[str, None] = {}
    for number, (size, name_at) in _DESCRIPTORS.items():
        place = _DIRECTORIES_AT + number * _DIRECTORY.size
        if place + _DIRECTORY.size <= len(optional):
            address = _DIRECTORY.unpack_from(optional, place)[0]
            found.update(dict.fromkeys(_names(file, table, address, size, name_at, name)))
    return Pe(_PE_MACHINES.get(machine, f"pe-machine-{machine}"), tuple(found))


def _names(
    file: IO[bytes], sections: list[tuple[bytes, int, int, int, int]], address: int, size: int, name_at: int, name: str
) -> Iterator[str]:
    """The DLLs of one import table, which ends with an empty descriptor."""
    start = _pe_file_offset(sections, address) if address else None
    if start is None:
        return
    for number in range(_MOST_DLLS):
        descriptor = _pe_at(file, start + number * size, size, name)
        pointer = _pe_file_offset(sections, struct.unpack_from("<I", descriptor, name_at)[0])
        if pointer is None:
            return
        text, end, _ = _pe_read(file, pointer, _PE_LONGEST_NAME).partition(b"\0")
        if not end:
            raise UsageError(f"{name} is damaged: a DLL's name does not end")
        yield text.decode("ascii", "replace")


def _pe_file_offset(sections: list[tuple[bytes, int, int, int, int]], address: int) -> int | None:
    for _, virtual_size, start, raw_size, offset in sections:
        if start and start <= address < start + max(virtual_size, raw_size):
            return offset + address - start
    return None


def _pe_at(file: IO[bytes], offset: int, count: int, name: str) -> bytes:
    data = _pe_read(file, offset, count)
    if len(data) < count:
        raise UsageError(f"{name} is no Windows library, or is cut off after {offset + len(data)} bytes")
    return data


def _pe_read(file: IO[bytes], offset: int, count: int) -> bytes:
    file.seek(offset)
    return file.read(count)
