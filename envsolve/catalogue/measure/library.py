"""One shared library: the CUDA code in it, the CUDA that it links, and its C++ ABI."""

from __future__ import annotations

import re
from collections import Counter
from typing import IO

from envsolve.catalogue.measure import elf, fatbin, pe
from envsolve.catalogue.measure.extension import common_code
from envsolve.catalogue.measure.model import Library, arch_order
from envsolve.catalogue.measure.runtime import major_needed

# 64-bit and little-endian, as CUDA has it: anything else is no library of a CUDA package, and no damage either.
_ELF = elf.MAGIC + b"\x02\x01"
# NVIDIA's libraries, by soname and by DLL name.
_NVIDIA = re.compile(
    r"lib(cu(da|blas|dnn|fft|rand|solver|sparse|pti|file|dss|tensor)|nv|nccl)"
    r"|(cu(da|blas|dnn|fft|rand|solver|sparse|pti|tensor)|nv(cuda|rtc|jitlink|jpeg|tools|toolsext|comp|mdi|infer)|nccl)"
    r"[\w.-]*\.dll$",
    re.IGNORECASE,
)
# c10's torchCheckFail takes a std::string; every extension that links libtorch calls it.
_CHECK_FAIL = re.compile(rb"torchCheckFailEPKcS2_jRK(Ss|NSt7__cxx11)")
_NEW_STRING = b"NSt7__cxx1112basic_string"
# Members of the std::string from before C++11: in mangled names it is Ss.
_OLD_STRING = re.compile(rb"\0_ZNK?Ss[0-9A-Z]")


def read_library(file: IO[bytes], name: str) -> Library:
    """One library: ELF or PE headers, and the headers of its fat binaries.

    Args:
        file: Seekable.
        name: Path inside the artefact.

    Raises:
        UsageError: A library that is damaged.
    """
    machine, needed, abi = _linkage(file, name)
    file.seek(0)
    lists: Counter[tuple[str, ...]] = Counter()
    isas: dict[str, str] = {}
    for entries in fatbin.containers(file):
        lists[_in_order({entry.arch for entry in entries if entry.kind is not fatbin.Kind.OTHER})] += 1
        for entry in entries:
            if entry.ptx_isa:
                isas[entry.arch] = max(isas.get(entry.arch, "0"), entry.ptx_isa, key=_numbers)
    every = {arch for archs in lists for arch in archs}
    return Library(
        file=name,
        machine=machine,
        sass=_in_order({arch for arch in every if arch.startswith("sm_")}),
        ptx=tuple(sorted(isas, key=arch_order)),
        ptx_isa=max(isas.values(), key=_numbers, default=None),
        ptx_isas={arch: isas[arch] for arch in sorted(isas, key=arch_order)},
        code=common_code(lists),
        needed=needed,
        cuda_major=major_needed(needed),
        cxx11_abi=abi,
    )


def _linkage(file: IO[bytes], name: str) -> tuple[str | None, tuple[str, ...], bool | None]:
    """The machine, NVIDIA libraries needed, and C++11 ABI; nothing of a file that is neither ELF nor PE."""
    file.seek(0)
    start = file.read(len(_ELF))
    if start == _ELF:
        header = elf.read_elf(file, name)
        abi = cxx11_abi(elf.dynamic_strings(file, name))
        return header.machine, tuple(filter(_NVIDIA.match, header.needed)), abi
    if start.startswith(pe.MAGIC) and name.lower().endswith((".dll", ".pyd", ".exe")):
        image = pe.read_pe(file, name)
        return image.machine, tuple(filter(_NVIDIA.match, image.needed)), None
    return None, (), None


def cxx11_abi(symbols: bytes) -> bool | None:
    """Which std::string the symbols of a library pass around; None where none tells, or they disagree.

    Args:
        symbols: Its dynamic strings, NUL-separated. What it shares with torch decides, where it shares anything.
    """
    shared = set(_CHECK_FAIL.findall(symbols))
    if shared:
        return shared == {b"NSt7__cxx11"} if len(shared) == 1 else None
    new, old = _NEW_STRING in symbols, _OLD_STRING.search(symbols) is not None
    return new if new != old else None


def _in_order(archs: set[str]) -> tuple[str, ...]:
    return tuple(sorted(archs, key=lambda arch: (arch.startswith("compute"), arch_order(arch))))


def _numbers(isa: str) -> list[int]:
    return [int(part) for part in isa.split(".")]
