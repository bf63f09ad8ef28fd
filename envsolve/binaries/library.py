"""One shared library: the CUDA code in it, the CUDA that it links, and its C++ ABI."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from envsolve.binaries import code, objects
from envsolve.binaries import code as fatbin
from envsolve.binaries.code import major_in_dll, major_needed
from envsolve.binaries.files import Artefact
from envsolve.binaries.model import Library, arch_order

# What the main libraries of a package are compiled for, where one wheel holds many libraries and many kernels.
#
# A CUDA extension is compiled file by file, and every file makes one fat binary with the code of its kernels for each
# GPU
# in its list. The project's list is behind most of the code; files for one generation alone (a kernel for ``sm_90a``)
# have lists of their own, and those are no support for a card.


# An extension that links libtorch calls c10's torchCheckFail(const char*, const char*, uint32_t, const std::string&);
# its mangled name shows which std::string that is. One on torch's stable ABI exchanges no C++ types and calls it not.
_EXTENSION_CHECK_FAIL = re.compile(rb"torchCheckFailEPKcS2_jRK(Ss|NSt7__cxx11)")


@dataclass(frozen=True, slots=True)
class Extension:
    """What the main libraries of a package carry.

    Attributes:
        code: The arch list behind most of their code, SASS before PTX; empty where they have no kernels.
        every: All lists together.
        ptx_isa: Newest PTX version among all their kernels, ``8.7``; None where they carry no PTX.
        cuda_major: CUDA major of the runtime that they need; None where they need none, or do not say.
        needs_torch: Whether they need torch's own libraries; a Windows DLL does not say.
        cxx11_abi: Which C++11 ABI they share with torch; None where no symbol tells.
    """

    code: tuple[str, ...]
    every: tuple[str, ...]
    ptx_isa: str | None
    cuda_major: int | None
    needs_torch: bool
    cxx11_abi: bool | None


def read_extension(artefact: Artefact, main: re.Pattern[str]) -> Extension | None:
    """Read the libraries whose path matches wholly, as one; None where there is none.

    Raises:
        UsageError: A library is damaged.
    """
    paths = [path for path in artefact.files() if main.fullmatch(path)]
    lists: Counter[tuple[str, ...]] = Counter()
    isas: set[str] = set()
    needed: list[str] = []
    of_dlls: set[int | None] = set()
    abis: set[bytes] = set()
    for path in paths:
        with artefact.open(path) as file:
            if file.read(len(objects.MAGIC)) == objects.MAGIC:
                needed += objects.read_elf(file, path).needed
                abis.update(_EXTENSION_CHECK_FAIL.findall(objects.dynamic_strings(file, path)))
            else:
                of_dlls.add(major_in_dll(file, path))
            file.seek(0)
            for entries in fatbin.containers(file):
                lists[_archs(entries)] += 1
                isas.update(entry.ptx_isa for entry in entries if entry.ptx_isa)
    if not paths:
        return None
    return Extension(
        code=common_code(lists),
        every=_extension_in_order({arch for archs in lists for arch in archs}),
        ptx_isa=max(isas, key=lambda isa: [int(part) for part in isa.split(".")], default=None),
        cuda_major=major_needed(needed) or max(filter(None, of_dlls), default=None),
        needs_torch=any(name.startswith(("libtorch", "libc10")) for name in needed),
        cxx11_abi=abis == {b"NSt7__cxx11"} if len(abis) == 1 else None,
    )


def common_code(lists: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """The arch list behind most of the code: by the number of fat binaries that have it, times its length.

    Fat binaries for one generation may outnumber the others (in onnxruntime-gpu 1.31 those for ``sm_90a`` do), and each
    holds one piece of code. Empty where there is none.

    Args:
        lists: How many fat binaries have each list.
    """
    carried = {archs: count for archs, count in lists.items() if archs}
    return max(carried, key=lambda archs: (carried[archs] * len(archs), len(archs), archs), default=())


def _archs(entries: tuple[fatbin.FatbinEntry, ...]) -> tuple[str, ...]:
    return _extension_in_order({entry.arch for entry in entries if entry.kind is not fatbin.Kind.OTHER})


def _extension_in_order(archs: set[str]) -> tuple[str, ...]:
    return tuple(sorted(archs, key=lambda arch: (arch.startswith("compute"), arch_order(arch))))


# 64-bit and little-endian, as CUDA has it: anything else is no library of a CUDA package, and no damage either.
_ELF = objects.MAGIC + b"\x02\x01"
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
    for entries in code.containers(file):
        lists[_in_order({entry.arch for entry in entries if entry.kind is not code.Kind.OTHER})] += 1
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
        header = objects.read_elf(file, name)
        abi = cxx11_abi(objects.dynamic_strings(file, name))
        return header.machine, tuple(filter(_NVIDIA.match, header.needed)), abi
    if start.startswith(objects.PE_MAGIC) and name.lower().endswith((".dll", ".pyd", ".exe")):
        image = objects.read_pe(file, name)
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
