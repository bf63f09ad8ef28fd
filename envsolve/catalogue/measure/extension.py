"""What the main libraries of a package are compiled for, where one wheel holds many libraries and many kernels.

A CUDA extension is compiled file by file, and every file makes one fat binary with the code of its kernels for each GPU
in its list. The project's list is behind most of the code; files for one generation alone (a kernel for ``sm_90a``)
have lists of their own, and those are no support for a card.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from envsolve.catalogue.measure import elf, fatbin
from envsolve.catalogue.measure.artefact import Artefact
from envsolve.catalogue.measure.model import arch_order
from envsolve.catalogue.measure.runtime import major_in_dll, major_needed

# An extension that links libtorch calls c10's torchCheckFail(const char*, const char*, uint32_t, const std::string&);
# its mangled name shows which std::string that is. One on torch's stable ABI exchanges no C++ types and calls it not.
_CHECK_FAIL = re.compile(rb"torchCheckFailEPKcS2_jRK(Ss|NSt7__cxx11)")


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
            if file.read(len(elf.MAGIC)) == elf.MAGIC:
                needed += elf.read_elf(file, path).needed
                abis.update(_CHECK_FAIL.findall(elf.dynamic_strings(file, path)))
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
        every=_in_order({arch for archs in lists for arch in archs}),
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
    return _in_order({entry.arch for entry in entries if entry.kind is not fatbin.Kind.OTHER})


def _in_order(archs: set[str]) -> tuple[str, ...]:
    return tuple(sorted(archs, key=lambda arch: (arch.startswith("compute"), arch_order(arch))))
