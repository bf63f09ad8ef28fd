"""CUDA toolkits, the packages that make up a compiler, and Triton's assemblers."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from envsolve.catalogue.model.evidence import Citation, Dispute, Evidence


class Ptxas(msgspec.Struct, frozen=True):
    """One assembler inside a Triton wheel.

    Attributes:
        file: ``ptxas`` or ``ptxas-blackwell``.
        cuda: CUDA version of the program, ``12.8``: its cubins need that family's driver.
        ptx_isa: Highest PTX version it reads, ``8.7``.
        archs: GPU names it accepts (``sm_90a``, ...).
        min_cc: Lowest compute capability that Triton uses it for.
        max_cc: First compute capability that Triton no longer uses it for; None for no bound.
        override: Environment variable that replaces it.
    """

    file: str
    cuda: str
    ptx_isa: str
    archs: tuple[str, ...]
    min_cc: str
    override: str
    max_cc: str | None = None


class TritonRelease(msgspec.Struct, frozen=True):
    """A Triton release line and the assemblers it bundles.

    Attributes:
        min_cc: Lowest compute capability that it serves.
        arch_specific_from: Lowest compute capability for which it asks its ptxas for arch-specific code (``sm_90a``);
            None where the wheel's sources do not show it.
        needs: Requirements that it imports without declaring them.
        host_needs: What its launcher needs of the host at run time: ``c-compiler``, ``python-headers``, and
            ``libcuda-link`` for a ``libcuda.so`` that a linker finds.
        targets: Compute capabilities that its compiler writes PTX for, whichever ptxas then reads it; empty where that
            was not tried.
        no_matrix_product: Compute capabilities for which it was tried and compiles simpler kernels alone: every
            ``tl.dot`` ends in an error of its compiler, whichever ptxas there is.
        ptxas_first: Oldest CUDA version whose ptxas it was tried with in place of its own, and works with.
        ptxas_last: Newest CUDA version whose PTX its table knows; None where it knows all that are to come.
    """

    version: str
    ptxas: tuple[Ptxas, ...]
    min_cc: str
    evidence: Evidence
    source: str
    arch_specific_from: str | None = None
    needs: tuple[str, ...] = ()
    host_needs: tuple[Literal["c-compiler", "python-headers", "libcuda-link"], ...] = ()
    targets: tuple[str, ...] = ()
    no_matrix_product: tuple[str, ...] = ()
    ptxas_first: str | None = None
    ptxas_last: str | None = None
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


class Toolkit(msgspec.Struct, frozen=True):
    """A CUDA toolkit release: the driver shipped with it, PTX ISA, architectures, host compiler limits."""

    version: str
    driver_linux: str | None
    driver_windows: str | None
    ptx_isa: str
    archs: tuple[str, ...]
    evidence: Evidence
    source: str
    gcc_max: int | None = None
    clang_below: int | None = None
    msvc_below: int | None = None
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


class CompilerPackages(msgspec.Struct, frozen=True):
    """The packages of one package manager that together make up a CUDA compiler, or a part of one.

    Attributes:
        manager: ``pip``, ``conda`` or ``apt``.
        first: First CUDA version (``13.0``) for which they do; ``last`` is the last, None for the newest.
        packages: Requirements in the manager's own form, ``nvidia-cuda-nvcc=={cuda}.*``.
        provides: What they hold: ``nvcc`` (the driver program), ``ptxas``, ``headers``, ``cudart``, ``libdevice``.
        libraries: Packages of further parts of the toolkit, with their headers, by the part: ``curand``.
        home: Where ``CUDA_HOME`` points then, relative to the environment; None where there is no whole tree.
        ptxas: Where the ptxas lies, relative to the folder of packages; None where it was not looked for.
        ptxas_packages: What holds the ptxas alone.
    """

    manager: Literal["pip", "conda", "apt"]
    first: str
    last: str | None
    packages: tuple[str, ...]
    provides: tuple[str, ...]
    evidence: Evidence
    source: str
    libraries: Mapping[str, str] = {}
    home: str | None = None
    ptxas: str | None = None
    ptxas_packages: tuple[str, ...] = ()
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()
