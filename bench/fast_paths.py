"""Measure which GPUs a torch wheel has fast kernels for, as records of ``index_data/fast_paths.json``.

    uv run --with zstandard --with lz4 python -m bench.fast_paths VERSION VARIANT LIBTORCH_CUDA...

The last argument is ``torch/lib/libtorch_cuda.so`` of the wheel. Its fat binaries are decompressed, and each kernel of
a path counts for the architectures whose cubin holds more than a stub of it: CUTLASS compiles every kernel for every
architecture, and one that the architecture cannot run is left with a few instructions.
"""

from __future__ import annotations

import importlib
import json
import mmap
import re
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CONTAINER = struct.Struct("<4sHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
START = struct.pack("<IHH", 0xBA55ED50, 1, CONTAINER.size)
#: A stub has at most 512 bytes in torch 2.6 to 2.15, the smallest real kernel of these paths 8,000.
REAL = 4096
#: SM numbers below which the matrix instructions of a path do not exist, although CUTLASS 2 leaves code there.
FIRST = {"fp8 with scales by row": 89, "2:4 sparse": 80}
#: Words of a kernel's mangled name, by the name of the path.
PATHS: Mapping[str, re.Pattern[bytes]] = {
    "flash attention": re.compile(rb"pytorch_flash\w*flash_fwd_kernel"),
    "memory-efficient attention": re.compile(rb"fmha_cutlassF_"),
    "fp8 with scales by row": re.compile(rb"(?:GemmUniversal|GemmWithVisitor)(?!\w*GroupProblemShape)\w*float_e4m3"),
    "grouped bf16": re.compile(rb"GroupProblemShape(?!\w*float_e)\w*bfloat16"),
    "grouped fp8": re.compile(rb"GroupProblemShape(?!\w*BlockScaled)\w*float_e4m3"),
    "grouped MXFP8": re.compile(rb"GroupProblemShape\w*BlockScaled\w*float_e4m3"),
    "grouped NVFP4 and MXFP4": re.compile(rb"GroupProblemShape\w*BlockScaled\w*float_e2m1"),
    "2:4 sparse": re.compile(rb"SparseGemm"),
    "int4 weights": re.compile(rb"tinygemm_m16n8k16"),
}
#: The generation whose instructions a CUTLASS 3 kernel is written in: only code for exactly that GPU has them.
MAINLOOP = re.compile(rb"MainloopSm(\d+)")
Unit = list[tuple[str, Mapping[bytes, int]]]


def units(data: Any) -> Iterator[Unit]:
    """The cubins of each fat binary: architecture, and bytes of code by the kernel's mangled name."""
    position = 0
    while 0 <= (at := data.find(START, position)) <= len(data) - CONTAINER.size:
        _, _, header, size = CONTAINER.unpack_from(data, at)
        if size > len(data):
            position = at + 4
            continue
        end = min(at + header + size, len(data))
        yield list(cubins(data, at + header, end))
        position = end


def cubins(data: Any, at: int, end: int) -> Iterator[tuple[str, Mapping[bytes, int]]]:
    while at + ENTRY.size <= end:
        kind, _, header, payload, compressed, _, _, _, arch, _, _, flags = ENTRY.unpack_from(data, at)
        if header < ENTRY.size or not 10 <= arch <= 999:
            return
        if kind == 2:
            body = decompressed(data[at + header : at + header + (compressed or payload)], flags)
            suffix = "a" if flags >> 20 & 1 else "f" if flags >> 21 & 1 else ""
            yield f"sm_{arch}{suffix}", dict(kernels(body))
        at += header + payload


def decompressed(body: bytes, flags: int) -> bytes:
    if flags & 0x8000:
        # Not among the dependencies of envsolve, which reads only the headers of such entries.
        zstandard = importlib.import_module("zstandard")
        return bytes(zstandard.ZstdDecompressor().decompress(body, max_output_size=1 << 29))
    if flags & 0x2000:
        return bytes(importlib.import_module("lz4.block").decompress(body, uncompressed_size=1 << 28))
    return body


def kernels(cubin: bytes) -> Iterator[tuple[bytes, int]]:
    (start,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    sections = [SECTION.unpack_from(cubin, start + number * SECTION.size) for number in range(count)]
    for section in sections:
        begin = sections[names][4] + section[0]
        name = cubin[begin : cubin.index(b"\0", begin)]
        if name.startswith(b".text."):
            yield name[6:], section[5]


def counts(name: bytes, size: int, arch: str) -> bool:
    """Whether an architecture has the kernel, and not merely a stub or a form without its instructions."""
    mainloop = MAINLOOP.search(name)
    if size < REAL or not mainloop:
        return size >= REAL
    generation = int(mainloop[1])
    return arch[-1] in "af" and number(arch) // 10 == generation // 10


def found(library: Path) -> Mapping[str, list[str]]:
    """The architectures by path."""
    seen: dict[str, set[str]] = defaultdict(set)
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for unit in units(data):
            for arch, sizes in unit:
                for name, size in sizes.items():
                    for path, pattern in PATHS.items():
                        if counts(name, size, arch) and pattern.search(name):
                            seen[path].add(arch)
    return {
        path: [arch for arch in sorted(seen[path], key=lambda a: (number(a), a)) if number(arch) >= FIRST.get(path, 0)]
        for path in PATHS
    }


def number(arch: str) -> int:
    """90 of ``sm_90a``."""
    return int(re.sub(r"\D", "", arch))


if __name__ == "__main__":
    version, variant, *libraries = sys.argv[1:]
    for library in libraries:
        for path, archs in found(Path(library)).items():
            print(json.dumps({"package": "torch", "version": version, "variant": variant, "path": path, "code": archs}))
