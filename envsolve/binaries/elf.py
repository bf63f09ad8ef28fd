"""ELF files as the dynamic loader sees them: headers, needed libraries, and the symbols that they import and export.

Layout: System V gABI, and for DT_GNU_HASH and symbol versions glibc's (``elf/dl-lookup.c``); 64-bit little-endian, the
only class and byte order that CUDA supports.
"""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO

from envsolve.errors import UsageError
from envsolve.system.files import open_regular

MAGIC = b"\x7fELF"
SUPPORTED = MAGIC + b"\x02\x01"
"""How a 64-bit little-endian file begins."""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_TAG = struct.Struct("<qQ")
_LOAD, _DYNAMIC, _DYNSYM = 1, 2, 11
_NULL, _NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 0, 1, 4, 5, 6, 10, 14, 15, 29
_GNU_HASH, _VERSYM, _VERDEF, _VERDEFNUM, _VERNEED = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE
_VERNEEDNUM = 0x6FFFFFFF
_TABLES = (_HASH, _STRTAB, _GNU_HASH, _VERSYM, _VERDEF, _VERNEED)
_WEAK, _UNDEFINED, _HIDDEN = 2, 0, 0x8000
_MACHINES = {62: "x86_64", 183: "aarch64", 190: "cuda"}
# Bounds on what a damaged or hostile file can make envsolve read.
_LARGEST_DYNAMIC = 1 << 20
_LONGEST_NAME = 4096
_LARGEST_STRINGS = 64 << 20
_MOST_SYMBOLS = 1 << 22
# File systems refuse to seek further, with an error of their own (ext4 at 16 TiB).
_LARGEST_FILE = 1 << 40
# What unpacking says of a place outside the file, or where no file can reach.
_DAMAGE = (struct.error, OverflowError)


@dataclass(frozen=True, slots=True)
class Elf:
    """The parts of a file that the loader reads.

    Attributes:
        machine: ``x86_64``, ``aarch64``, otherwise ``elf-machine-N``.
        needed: The NEEDED entries, in file order.
        soname: The name by which others need it.
        rpath: Directories searched before ``LD_LIBRARY_PATH``, unless there is a ``runpath``.
        runpath: Directories searched after ``LD_LIBRARY_PATH``.
        end: Bytes that the file must have for all that is loaded from it; a shorter one is cut off.
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
    headers = _Headers(file, name)
    base = headers.place(headers.tags.get(_STRTAB))

    def strings(wanted: int) -> tuple[str, ...]:
        if base is None:
            return ()
        return tuple(_string(file, base + offset, name) for tag, offset in headers.entries if tag == wanted)

    def directories(wanted: int) -> tuple[str, ...]:
        return tuple(directory for path in strings(wanted) for directory in path.split(":") if directory)

    return Elf(
        machine=_MACHINES.get(headers.machine, f"elf-machine-{headers.machine}"),
        needed=strings(_NEEDED),
        soname=next(iter(strings(_SONAME)), None),
        rpath=directories(_RPATH),
        runpath=directories(_RUNPATH),
        end=max((offset + size for offset, _, size in headers.loads), default=0),
    )


def dynamic_strings(file: IO[bytes], name: str) -> bytes:
    """The names that the loader sees, NUL-separated: of libraries, and of imported and exported symbols.

    Args:
        file: Seekable.
        name: For messages.

    Raises:
        UsageError: Not a 64-bit little-endian ELF file, or cut off.
    """
    headers = _Headers(file, name)
    base = headers.place(headers.tags.get(_STRTAB))
    return b"" if base is None else _read(file, base, min(headers.tags.get(_STRSZ, 0), _LARGEST_STRINGS))


class _Headers:
    """The program headers and the dynamic section.

    Attributes:
        loads: Offset in the file, address, and size in the file of each segment that is loaded.
        entries: Tags and values of the dynamic section; ``tags`` has the last value of each.
        sections: Offset and number of the section headers.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        header = read_at(file, 0, _HEADER.size, name)
        if not header.startswith(SUPPORTED):
            raise UsageError(f"{name} is not a 64-bit little-endian ELF file")
        fields = _HEADER.unpack(header)
        self.machine: int = fields[2]
        self.sections: tuple[int, int] = (fields[6], fields[12])
        offset, entry_size, count = fields[5], fields[9], fields[10]
        if count and entry_size != _SEGMENT.size:
            raise UsageError(f"{name} is damaged: its program headers are {entry_size} bytes long")
        segments = list(_SEGMENT.iter_unpack(read_at(file, offset, count * _SEGMENT.size, name)))
        self.loads: list[tuple[int, int, int]] = [(s[2], s[3], s[5]) for s in segments if s[0] == _LOAD]
        self.entries: list[tuple[int, int]] = []
        for dynamic in [s for s in segments if s[0] == _DYNAMIC][:1]:
            size = min(dynamic[5], _LARGEST_DYNAMIC)
            for tag, value in _TAG.iter_unpack(read_at(file, dynamic[2], size - size % _TAG.size, name)):
                if tag == _NULL:
                    break
                self.entries.append((tag, value))
        self.tags: Mapping[int, int] = dict(self.entries)

    def place(self, address: int | None) -> int | None:
        """Where in the file an address lies."""
        if address is None:
            return None
        return next((offset + address - start for offset, start, n in self.loads if start <= address < start + n), None)


def _string(file: IO[bytes], offset: int, name: str) -> str:
    text, end, _ = _read(file, offset, _LONGEST_NAME).partition(b"\0")
    if not end:
        raise UsageError(f"{name} is damaged: a library name does not end")
    return text.decode("utf-8", "replace")


def read_at(file: IO[bytes], offset: int, count: int, name: str) -> bytes:
    """Exactly ``size`` bytes of a library.

    Raises:
        UsageError: It ends before.
    """
    data = _read(file, offset, count)
    if len(data) < count:
        raise UsageError(f"{name} is not a library, or is cut off after {offset + len(data)} bytes")
    return data


def _read(file: IO[bytes], offset: int, count: int) -> bytes:
    if offset >= _LARGEST_FILE:
        return b""
    file.seek(offset)
    return file.read(count)


@dataclass(frozen=True, slots=True)
class Taken:
    """A symbol that a library imports from another.

    Attributes:
        version: ``GLIBC_2.34``; None if it asks for none.
        source: The soname of the library that must have this version.
    """

    name: bytes
    version: bytes | None = None
    source: bytes | None = None


@lru_cache(maxsize=1 << 16)
def gnu_hash(name: bytes) -> int:
    """The hash of DT_GNU_HASH."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


class Symbols:
    """The dynamic symbols of one library; must be closed.

    Torch's libraries have a hundred thousand names. So the file is mapped, only the names that are taken are read, and
    each is looked up through the hash table, as the loader does it.

    Raises:
        UsageError: It is damaged, or not a 64-bit little-endian ELF file.
        OSError: It cannot be read.
    """

    def __init__(self, source: Path | bytes, name: str = "") -> None:
        self._name = name or getattr(source, "name", "")
        with io.BytesIO(source) if isinstance(source, bytes) else open_regular(source) as file:
            try:
                self._headers = _Headers(file, self._name)
                self._data = (
                    source if isinstance(source, bytes) else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                )
            except (*_DAMAGE, ValueError) as error:
                raise UsageError(f"{self._name} is not a library, or is cut off: {error}") from error
        self._tags = self._headers.tags

    def close(self) -> None:
        """Close the file."""
        self._data.close() if isinstance(self._data, mmap.mmap) else None

    def taken(self) -> Iterator[Taken]:
        """The symbols that must be found elsewhere; weak ones need not be.

        Raises:
            UsageError: A table is damaged.
        """
        try:
            yield from self._taken()
        except _DAMAGE as error:
            raise UsageError(f"{self._name} is damaged: {error}") from error

    def gives(self, wanted: Taken) -> bool:
        """Whether it exports a symbol in the given version.

        A library without versions matches any required version, and a requirement without a version matches any.

        Raises:
            UsageError: A table is damaged.
        """
        try:
            return any(self._right_version(index, wanted.version) for index in self._found(wanted.name))
        except _DAMAGE as error:
            raise UsageError(f"{self._name} is damaged: {error}") from error

    def _at(self, tag: int) -> int | None:
        """Where in the file a table of the dynamic section lies."""
        return self._headers.place(self._tags.get(tag))

    @cached_property
    def _symbols(self) -> int | None:
        return self._at(_SYMTAB)

    @cached_property
    def _versions(self) -> int | None:
        return self._at(_VERSYM)

    @cached_property
    def _strings(self) -> int:
        return self._at(_STRTAB) or 0

    def _symbol(self, index: int) -> tuple[int, int, int]:
        """Place of the name, binding, section."""
        name, info, _, section, _, _ = _SYMBOL.unpack_from(self._data, (self._symbols or 0) + index * _SYMBOL.size)
        return name, info >> 4, section

    def _text(self, offset: int) -> bytes:
        start = self._strings + offset
        end = self._data.find(b"\0", start)
        return self._data[start:end] if end >= 0 else b""

    def _taken(self) -> Iterator[Taken]:
        if self._symbols is None:
            return
        needed, versions = self._needed_versions, self._versions
        for index in range(1, self._first_given()):
            name, binding, section = self._symbol(index)
            if section != _UNDEFINED or binding == _WEAK or not name:
                continue
            number = struct.unpack_from("<H", self._data, versions + 2 * index)[0] & ~_HIDDEN if versions else 0
            source, version = needed.get(number, (None, None))
            yield Taken(self._text(name), version, source)

    def _first_given(self) -> int:
        """The number of the first exported symbol: with DT_GNU_HASH all imported ones come before it."""
        if self._hashes is not None:
            buckets, first, *_, start = self._hashes
            if any(struct.unpack_from(f"<{buckets}I", self._data, start)):
                return first
        return self._count()

    def _count(self) -> int:
        """The number of symbols, for a hash table that lists none of the exported ones."""
        table = self._at(_HASH)
        if table is not None:
            (count,) = struct.unpack_from("<I", self._data, table + 4)
            return min(int(count), _MOST_SYMBOLS)
        offset, sections = self._headers.sections
        for number in range(sections):
            section = _SECTION.unpack_from(self._data, offset + number * _SECTION.size)
            if section[1] == _DYNSYM:
                return min(int(section[5]) // _SYMBOL.size, _MOST_SYMBOLS)
        # Without section headers: up to the table that follows.
        start = self._tags[_SYMTAB]
        ends = [self._tags[tag] for tag in _TABLES if self._tags.get(tag, 0) > start]
        return min((min(ends, default=start) - start) // _SYMBOL.size, _MOST_SYMBOLS)

    def _found(self, name: bytes) -> Iterator[int]:
        """The numbers of the exported symbols of that name."""
        if self._symbols is None:
            return
        if self._hashes is None:
            yield from self._old_table.get(name, ())
            return
        buckets, first, words, shift, bloom, start = self._hashes
        value = gnu_hash(name)
        (word,) = struct.unpack_from("<Q", self._data, bloom + 8 * (value // 64 % words))
        if not (word >> value % 64) & (word >> (value >> shift) % 64) & 1:
            return
        (index,) = struct.unpack_from("<I", self._data, start + 4 * (value % buckets))
        while index >= first > 0:
            (found,) = struct.unpack_from("<I", self._data, start + 4 * (buckets + index - first))
            if found | 1 == value | 1 and self._is(index, name):
                yield index
            if found & 1:
                return
            index += 1

    @cached_property
    def _hashes(self) -> tuple[int, int, int, int, int, int] | None:
        """Of DT_GNU_HASH: buckets, first symbol, words and shift of the filter, and where filter and buckets are."""
        table = self._at(_GNU_HASH)
        if table is None:
            return None
        buckets, first, words, shift = struct.unpack_from("<IIII", self._data, table)
        if not buckets or not words:
            raise UsageError(f"{self._name} is damaged: its table of hashes is empty")
        return buckets, first, words, shift, table + 16, table + 16 + 8 * words

    def _is(self, index: int, name: bytes) -> bool:
        place, _, section = self._symbol(index)
        start = self._strings + place
        return section != _UNDEFINED and self._data[start : start + len(name) + 1] == name + b"\0"

    @cached_property
    def _old_table(self) -> Mapping[bytes, list[int]]:
        """Every exported symbol of a library without DT_GNU_HASH."""
        found: dict[bytes, list[int]] = {}
        for index in range(1, self._count()):
            name, _, section = self._symbol(index)
            if section != _UNDEFINED:
                found.setdefault(self._text(name), []).append(index)
        return found

    def _right_version(self, index: int, wanted: bytes | None) -> bool:
        if wanted is None or self._versions is None or not self._given_versions:
            return True
        number = struct.unpack_from("<H", self._data, self._versions + 2 * index)[0] & ~_HIDDEN
        return self._given_versions.get(number) == wanted

    @cached_property
    def _needed_versions(self) -> Mapping[int, tuple[bytes, bytes]]:
        """The library and the version behind each number of a required version."""
        found: dict[int, tuple[bytes, bytes]] = {}
        position = self._at(_VERNEED)
        for _ in range(self._tags.get(_VERNEEDNUM, 0) if position else 0):
            assert position is not None
            _, count, file, first, following = struct.unpack_from("<HHIII", self._data, position)
            one = position + first
            for _ in range(count):
                _, _, number, name, step = struct.unpack_from("<IHHII", self._data, one)
                found[number & ~_HIDDEN] = self._text(file), self._text(name)
                one += step
                if not step:
                    break
            position += following
            if not following:
                break
        return found

    @cached_property
    def _given_versions(self) -> Mapping[int, bytes]:
        """The version behind each number of an exported version; the first is the library's own name."""
        found: dict[int, bytes] = {}
        position = self._at(_VERDEF)
        for _ in range(self._tags.get(_VERDEFNUM, 0) if position else 0):
            assert position is not None
            _, flags, number, count, _, first, following = struct.unpack_from("<HHHHIII", self._data, position)
            if count and not flags & 1:
                (name, _) = struct.unpack_from("<II", self._data, position + first)
                found[number & ~_HIDDEN] = self._text(name)
            position += following
            if not following:
                break
        return found
