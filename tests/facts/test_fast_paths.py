"""What counts as a kernel of a fast path when a wheel is measured, on a fat binary made here."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.fast_paths import CONTAINER, ENTRY, SECTION, START, counts, found
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.files import FAST_PATHS, data_folder
from envsolve.values import Arch

FLASH = b"_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsEEv"
HOPPER = (
    b"_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalI17GroupProblemShapeI25MainloopSm90ArrayTmaGmma8bfloat16"
)


def cubin(kernels: Mapping[bytes, int]) -> bytes:
    names = b"\0.shstrtab\0" + b"".join(b".text." + name + b"\0" for name in kernels)
    sections = [(1, 3, 64, len(names))]
    sections += [(names.index(b".text." + name + b"\0"), 1, 0, size) for name, size in kernels.items()]
    header = b"\x7fELF".ljust(40, b"\0") + struct.pack("<Q", 64 + len(names))
    header = header.ljust(60, b"\0") + struct.pack("<HH", len(sections), 0)
    table = b"".join(SECTION.pack(name, kind, 0, 0, at, size, 0, 0, 0, 0) for name, kind, at, size in sections)
    return header + names + table


def fat_binary(cubins: Mapping[tuple[int, int], Mapping[bytes, int]]) -> bytes:
    entries = b""
    for (arch, flags), kernels in cubins.items():
        body = cubin(kernels)
        entries += ENTRY.pack(2, 0, ENTRY.size, len(body), 0, 0, 0, 0, arch, 0, 0, flags) + body
    return CONTAINER.pack(START[:4], 1, CONTAINER.size, len(entries)) + entries


def test_stubs_and_generic_code_of_a_generation_do_not_count(tmp_path: Path) -> None:
    library = tmp_path / "libtorch_cuda.so"
    cubins = {
        (75, 0): {FLASH: 256, HOPPER: 384},
        (80, 0): {FLASH: 200_000, HOPPER: 512},
        (90, 0): {FLASH: 200_000, HOPPER: 70_000},
        (90, 1 << 20): {HOPPER: 50_000},
        (100, 1 << 20): {HOPPER: 50_000},
    }
    library.write_bytes(b"before" + fat_binary(cubins) + b"after" + START)
    measured = found(library)
    assert measured["flash attention"] == ["sm_80", "sm_90"]
    assert measured["grouped bf16"] == ["sm_90a"]
    assert measured["grouped fp8"] == []


@pytest.mark.parametrize(
    ("name", "size", "arch", "real"),
    [
        (b"MainloopSm100Array", 70_000, "sm_103f", True),
        (b"MainloopSm120Tma", 30_000, "sm_121a", True),
        (b"MainloopSm120Tma", 30_000, "sm_120", False),
        (b"MainloopSm90Tma", 128, "sm_90a", False),
        (b"tinygemm", 8_000, "sm_80", True),
    ],
)
def test_what_counts(name: bytes, size: int, arch: str, real: bool) -> None:
    assert counts(name, size, arch) is real


def test_each_measured_build_is_in_the_catalogue_and_has_all_paths() -> None:
    catalogue = Catalogue(data_folder())
    builds = {(build.package, build.version, build.variant) for build in catalogue.builds("torch")}
    paths: dict[tuple[str, str, str], list[str]] = {}
    for record in catalogue.records(FAST_PATHS):
        assert all(Arch.parse(code).kind == "sass" for code in record.code)
        paths.setdefault((record.package, record.version, record.variant), []).append(record.path)
    assert set(paths) <= builds
    assert len({tuple(names) for names in paths.values()}) == 1
