"""The symbols that a library takes and gives, as the dynamic loader looks them up.

Tables of torch's libraries are large (a hundred thousand names). So the file is mapped, only the names that are taken
are read, and each is looked up through the table of hashes, as the loader does it.

Layout: System V gABI, and for DT_GNU_HASH and symbol versions glibc's (``elf/dl-lookup.c``); 64-bit little-endian.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType

from envsolve.errors import UsageError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_TAG = struct.Struct("<qQ")
_LOAD, _DYNAMIC, _DYNSYM = 1, 2, 11
_HASH, _STRTAB, _SYMTAB, _GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_VERSYM, _VERDEF, _VERDEFNUM, _VERNEED, _VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_TABLES = (_HASH, _STRTAB, _GNU_HASH, _VERSYM, _VERDEF, _VERNEED)
_WEAK, _UNDEFINED, _HIDDEN = 2, 0, 0x8000
_MOST = 1 << 22
# What unpacking says of a place outside the file, or where no file can reach.
_DAMAGE = (struct.error, OverflowError)


@dataclass(frozen=True, slots=True)
class Taken:
    """A symbol that a library takes from another.

    Attributes:
        version: ``GLIBC_2.34``; None where it asks for none.
        source: The library that is to have this version, by its soname.
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
    """The dynamic symbols of one library; to be closed.

    Raises:
        UsageError: It is damaged, or no 64-bit little-endian ELF file.
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        with path.open("rb") as file:
            try:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # empty
                raise UsageError(f"{path.name} is empty") from error
        try:
            self._loads, self._tags, self._sections = self._read_headers()
        except (*_DAMAGE, UsageError) as error:
            self.close()
            raise UsageError(f"{path.name} is no library, or is cut off: {error}") from error

    def __enter__(self) -> Symbols:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._data.close()

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
        """Whether it has a symbol, in the version that is asked for.

        A library without versions gives a symbol in any; who asks for no version takes any.

        Raises:
            UsageError: A table is damaged.
        """
        try:
            return any(self._right_version(index, wanted.version) for index in self._found(wanted.name))
        except _DAMAGE as error:
            raise UsageError(f"{self._name} is damaged: {error}") from error

    def _read_headers(self) -> tuple[list[tuple[int, int, int]], Mapping[int, int], tuple[int, int]]:
        header = _HEADER.unpack_from(self._data)
        if not header[0].startswith(b"\x7fELF\x02\x01"):
            raise UsageError("no 64-bit little-endian ELF file")
        segments = [_SEGMENT.unpack_from(self._data, header[5] + i * _SEGMENT.size) for i in range(header[10])]
        loads = [(s[3], s[3] + s[5], s[2] - s[3]) for s in segments if s[0] == _LOAD]
        tags: dict[int, int] = {}
        for dynamic in (s for s in segments if s[0] == _DYNAMIC):
            for position in range(dynamic[2], dynamic[2] + dynamic[5], _TAG.size):
                tag, value = _TAG.unpack_from(self._data, position)
                if not tag:
                    break
                tags.setdefault(tag, value)
        return loads, tags, (header[6], header[12])

    def _at(self, tag: int) -> int | None:
        """Where in the file a table of the dynamic section lies."""
        address = self._tags.get(tag)
        if address is None:
            return None
        return next((address + shift for start, end, shift in self._loads if start <= address < end), None)

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
        """The number of the first symbol that may be given: with DT_GNU_HASH all that are taken come before it."""
        if self._hashes is not None:
            buckets, first, *_, start = self._hashes
            if any(struct.unpack_from(f"<{buckets}I", self._data, start)):
                return first
        return self._count()

    def _count(self) -> int:
        """How many symbols there are, where the table of hashes names none that are given."""
        table = self._at(_HASH)
        if table is not None:
            (count,) = struct.unpack_from("<I", self._data, table + 4)
            return min(int(count), _MOST)
        offset, sections = self._sections
        for number in range(sections):
            section = _SECTION.unpack_from(self._data, offset + number * _SECTION.size)
            if section[1] == _DYNSYM:
                return min(int(section[5]) // _SYMBOL.size, _MOST)
        # Without section headers: up to the table that follows.
        start = self._tags[_SYMTAB]
        ends = [self._tags[tag] for tag in _TABLES if self._tags.get(tag, 0) > start]
        return min((min(ends, default=start) - start) // _SYMBOL.size, _MOST)

    def _found(self, name: bytes) -> Iterator[int]:
        """The numbers of the symbols of that name that are given."""
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
        """Of DT_GNU_HASH: buckets, first symbol, words and shift of the filter, where filter and buckets are."""
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
        """Every symbol that is given, of a library that has no DT_GNU_HASH."""
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
        """The library and the version behind each number of a version that is needed."""
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
        """The version behind each number of a version that is given; the first is the library's own name."""
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
