"""Artefacts made by hand from the documented layouts, small enough to read in a failing test."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence

PTX, CUBIN = 1, 2
ARCH_SPECIFIC, FAMILY_SPECIFIC = 1 << 20, 1 << 21


def entry(
    kind: int, arch: int, *, flags: int = 0x11, isa: tuple[int, int] = (8, 7), payload: bytes = b"x" * 24
) -> bytes:
    """One fat binary entry with a 64-byte header."""
    major, minor = isa
    head = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(payload), 0, 0, minor, major, arch, 0, 0, flags, 0, 0)
    return head + payload


def container(*entries: bytes) -> bytes:
    """A fat binary."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def elf(
    needed: Sequence[str] = (),
    *,
    soname: str | None = None,
    rpath: str | None = None,
    runpath: str | None = None,
    machine: int = 62,
    tail: bytes = b"",
    symbols: Sequence[str] = (),
) -> bytes:
    """A shared library: one LOAD segment, a dynamic section with its string table, then ``tail``."""
    base = 0x1000
    named = [(1, name) for name in needed]
    named += [(tag, text) for tag, text in ((14, soname), (15, rpath), (29, runpath)) if text is not None]
    strings, dynamic = b"\0", b""
    for tag, text in named:
        dynamic += struct.pack("<qQ", tag, len(strings))
        strings += text.encode() + b"\0"
    strings += b"".join(symbol.encode() + b"\0" for symbol in symbols)
    at = 64 + 2 * 56
    dynamic_at = at + len(strings)
    dynamic += struct.pack("<qQqQqQ", 5, base + at, 10, len(strings), 0, 0)
    size = dynamic_at + len(dynamic) + len(tail)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 4096)
    segment = struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, base + dynamic_at, 0, len(dynamic), len(dynamic), 8)
    return header + load + segment + strings + dynamic + tail


def pe(imports: Sequence[str] = (), delayed: Sequence[str] = (), *, machine: int = 0x8664, tail: bytes = b"") -> bytes:
    """A 64-bit DLL: headers, one section that holds both import tables and their names, then ``tail``."""
    base, at = 0x1000, 0x200
    names = b"".join(name.encode() + b"\0" for name in (*imports, *delayed))
    tables = 20 * (len(imports) + 1) + 32 * (len(delayed) + 1)
    address = base + tables
    first = second = b""
    for name in imports:
        first += struct.pack("<IIIII", 0, 0, 0, address, 0)
        address += len(name) + 1
    for name in delayed:
        second += struct.pack("<IIIIIIII", 1, address, 0, 0, 0, 0, 0, 0)
        address += len(name) + 1
    section = first + bytes(20) + second + bytes(32) + names
    directories = bytearray(16 * 8)
    struct.pack_into("<II", directories, 8, base, len(first) + 20)
    struct.pack_into("<II", directories, 13 * 8, base + len(first) + 20, len(second) + 32)
    optional = struct.pack("<H", 0x20B) + bytes(110) + bytes(directories)
    head = b"MZ" + bytes(58) + struct.pack("<I", 64)
    head += b"PE\0\0" + struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, len(optional), 0x2022) + optional
    head += struct.pack("<8sIIII16x", b".rdata", len(section), base, len(section), at)
    return head.ljust(at, b"\0") + section + tail


def wheel(name: str, version: str, members: Mapping[str, bytes | str], *, requires: Sequence[str] = ()) -> bytes:
    """A wheel with METADATA and WHEEL; the same bytes, and so the same hash, whenever it is made."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.9\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in {
            **members,
            f"{info}/METADATA": metadata + "\nA description.\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: cp312-cp312-linux_x86_64\n",
        }.items():
            archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


ARCH_LITERAL = b"%s: no such\0sm_75 sm_80 sm_90 compute_90\0other\0sm_75\0"
CHECK_FAIL = b"\0_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcE\0"


# What torch says to those who compile against it.
CPP_EXTENSION = """
CUDA_GCC_VERSIONS: VersionMap = {
    '11.0': (MINIMUM_GCC_VERSION, (10, 0)),
    '11.2': (MINIMUM_GCC_VERSION, (10, 2, 1)),
    '12.8': ((6, 0, 0), (15, 0)),
}
CUDA_CLANG_VERSIONS: VersionMap = {
    '12.8': ((7, 0), (20, 0)),
}
supported_arches = ['3.5', '9.0', '9.0a', '10.0']
cflags = ['-std=c++17']
sycl = ['-std=c++20']
"""
ATEN = "#error C++17 or later compatible compiler is required to use ATen.\n"


def torch_wheel(
    *, release: str = "2.11.0", cuda: str | None = "13.0", extra: Mapping[str, bytes | str] | None = None
) -> bytes:
    """A wheel that has what torch's have where measuring looks."""
    local = "+cpu" if cuda is None else "+cu" + cuda.replace(".", "")
    version = f"from typing import Optional\n__version__ = '{release}{local}'\ncuda: Optional[str] = {cuda!r}\n"
    members: dict[str, bytes | str] = {
        "torch/version.py": version,
        "torch/lib/libtorch_python.so": elf(tail=(ARCH_LITERAL if cuda else b"") + CHECK_FAIL),
        "torch/utils/cpp_extension.py": CPP_EXTENSION,
        "torch/include/ATen/ATen.h": ATEN,
        **(extra or {}),
    }
    return wheel("torch", release, members, requires=["filelock", "triton==3.6.0; sys_platform == 'linux'"])
