"""Shared libraries made by hand from the documented layouts: a dynamic section, symbols, hashes and versions."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from envsolve.binaries.elf import gnu_hash

Symbol = str | tuple[str, str] | tuple[str, str, str]
"""A name; with its version; and for one that is taken, with the library that is to have it."""
BASE = 0x10000
HEADERS = 64 + 2 * 56


class _Strings:
    def __init__(self) -> None:
        self.content = b"\0"

    def add(self, text: str) -> int:
        place = len(self.content)
        self.content += text.encode() + b"\0"
        return place


def library(
    *,
    needed: Sequence[str] = (),
    soname: str | None = None,
    rpath: str | None = None,
    runpath: str | None = None,
    takes: Sequence[Symbol] = (),
    weak: Sequence[str] = (),
    gives: Sequence[Symbol] = (),
    hashes: Literal["gnu", "sysv", "sections"] = "gnu",
) -> bytes:
    """A shared library for x86_64.

    Args:
        takes: Symbols that must be found elsewhere.
        weak: Symbols that need not be.
        gives: Symbols that it has.
        hashes: By which table they are found; with ``sections``, an empty DT_GNU_HASH and a section header.
    """
    strings = _Strings()
    tags = [(1, strings.add(name)) for name in needed]
    tags += [(tag, strings.add(text)) for tag, text in ((14, soname), (15, rpath), (29, runpath)) if text is not None]
    given = sorted(map(_parts, gives), key=lambda parts: gnu_hash(parts[0].encode()) % 2)
    taken = list(map(_parts, takes))
    symbols, versions = bytes(24), [0]
    needs, defines = dict[tuple[str, str], int](), dict[str, int]()
    for name, version, source in taken:
        symbols += struct.pack("<IBBHQQ", strings.add(name), 1 << 4, 0, 0, 0, 0)
        versions.append(needs.setdefault((source, version), 20 + len(needs)) if version else 1)
    for name in weak:
        symbols += struct.pack("<IBBHQQ", strings.add(name), 2 << 4, 0, 0, 0, 0)
        versions.append(1)
    first = len(versions)
    for name, version, _ in given:
        symbols += struct.pack("<IBBHQQ", strings.add(name), 1 << 4, 0, 5, 0x100, 8)
        versions.append(defines.setdefault(version, 2 + len(defines)) if version else 1)
    names = [name for name, _, _ in given]
    parts = [(6, symbols), *_tables(hashes, names, first)]
    if needs or defines:
        parts += [(0x6FFFFFF0, struct.pack(f"<{len(versions)}H", *versions)), *_versions(needs, defines, strings)]
    parts.append((5, strings.content))
    return _file(
        tags, parts, [(0x6FFFFFFF, len(needs)), (0x6FFFFFFD, len(defines)), (10, len(strings.content))], hashes
    )


def _parts(symbol: Symbol) -> tuple[str, str, str]:
    words = (symbol,) if isinstance(symbol, str) else symbol
    name, version, source = (*words, "", "")[:3]
    return name, version, source


def _tables(hashes: str, names: Sequence[str], first: int) -> list[tuple[int, bytes]]:
    count = first + len(names)
    if hashes == "sysv":
        return [(4, struct.pack(f"<II{1 + count}I", 1, count, *[0] * (1 + count)))]
    if hashes == "sections" or not names:
        return [(0x6FFFFEF5, struct.pack("<IIIIQI", 1, 1, 1, 0, 0, 0))]
    values = [gnu_hash(name.encode()) for name in names]
    bloom, buckets, chains = 0, [0, 0], list[int]()
    for place, value in enumerate(values):
        bloom |= 1 << value % 64 | 1 << (value >> 6) % 64
        buckets[value % 2] = buckets[value % 2] or first + place
        last = place + 1 == len(values) or values[place + 1] % 2 != value % 2
        chains.append(value | 1 if last else value & ~1)
    return [(0x6FFFFEF5, struct.pack(f"<IIIIQII{len(chains)}I", 2, first, 1, 6, bloom, *buckets, *chains))]


def _versions(needs: dict[tuple[str, str], int], defines: dict[str, int], strings: _Strings) -> list[tuple[int, bytes]]:
    wanted = b""
    for place, ((source, version), number) in enumerate(needs.items()):
        following = 32 if place + 1 < len(needs) else 0
        wanted += struct.pack("<HHIII", 1, 1, strings.add(source), 16, following)
        wanted += struct.pack("<IHHII", 0, 0, number, strings.add(version), 0)
    has = b""
    for place, (version, number) in enumerate(defines.items()):
        following = 28 if place + 1 < len(defines) else 0
        has += struct.pack("<HHHHIII", 1, 0, number, 1, 0, 20, following) + struct.pack("<II", strings.add(version), 0)
    return [(tag, table) for tag, table in ((0x6FFFFFFE, wanted), (0x6FFFFFFC, has)) if table]


def _file(
    tags: list[tuple[int, int]], parts: list[tuple[int, bytes]], counts: list[tuple[int, int]], hashes: str
) -> bytes:
    body, placed = b"", list[tuple[int, int]]()
    for tag, part in parts:
        body += bytes(-len(body) % 8)
        placed.append((tag, BASE + HEADERS + len(body)))
        body += part
    body += bytes(-len(body) % 8)
    at = HEADERS + len(body)
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in (*tags, *placed, *counts, (0, 0)))
    size = at + len(dynamic)
    table, sections = b"", 0
    if hashes == "sections":
        (symbols,) = (address - BASE for tag, address in placed if tag == 6)
        length = len(parts[0][1])
        table, sections = struct.pack("<IIQQQQIIQQ", 0, 11, 2, BASE + symbols, symbols, length, 0, 0, 8, 24), 1
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        3,
        62,
        1,
        0,
        64,
        size if sections else 0,
        0,
        64,
        56,
        2,
        64,
        sections,
        0,
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 4096)
    segment = struct.pack("<IIQQQQQQ", 2, 6, at, BASE + at, 0, len(dynamic), len(dynamic), 8)
    return head + load + segment + body + dynamic + table


def write(folder: Path, name: str, **parts: Any) -> Path:
    """Write a library into a directory; its soname is its name unless ``parts`` say otherwise."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(library(**{"soname": path.name, **parts}))
    return path
