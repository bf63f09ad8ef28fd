"""Drivers, GPUs and architectures."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from envsolve.facts.evidence import Evidence, Fact
from envsolve.values import CudaVersion, DriverVersion


class Floor(msgspec.Struct, frozen=True):
    """Oldest driver that runs a CUDA family through minor-version compatibility.

    Attributes:
        first: First CUDA version of the range, ``11.1``.
        last: Last CUDA version of the range, inclusive; None for the whole rest of the major.
        linux: Driver version on Linux; ``windows`` is that on Windows.
    """

    first: str
    last: str | None
    linux: str
    windows: str | None
    evidence: Evidence
    source: str


class DriverBranch(Fact, frozen=True):
    """A driver branch: the CUDA version and PTX ISA it supports, and its life.

    Attributes:
        first: The earliest release known, a bare branch number where none is.
        kind: NVIDIA's data-centre branch type.
        end_of_life: ISO date (or month) on which NVIDIA ends or ended its support, for data-centre branches.
    """

    branch: str
    cuda: str
    ptx_isa: str
    first: str
    evidence: Evidence
    source: str
    lts: bool = False
    kind: Literal["production", "lts", "new-feature"] | None = None
    end_of_life: str | None = None

    @property
    def cuda_version(self) -> CudaVersion:
        """The newest CUDA version that the branch supports."""
        return CudaVersion.parse(self.cuda)


class HeaderClash(msgspec.Struct, frozen=True):
    """Functions that glibc declares otherwise than the headers of older toolkits.

    Attributes:
        functions: Their names; the forms for float end in ``f``.
        libc: The first C library that declares them so, ``glibc 2.42``.
        fixed: The first toolkit whose headers agree.
    """

    functions: tuple[str, ...]
    libc: str
    fixed: str
    evidence: Evidence
    source: str


class Peak(msgspec.Struct, frozen=True):
    """The highest rates of a GPU that its maker documents, without sparsity.

    Attributes:
        names: As the driver writes them, ``NVIDIA H100 80GB HBM3``: one model has several rates.
        bf16_tflops: bfloat16 products with float32 sums.
        fp8_tflops: None for a GPU without float8.
        memory_gbs: Bytes of its memory a second, in 10**9.
    """

    names: tuple[str, ...]
    bf16_tflops: float
    memory_gbs: float
    evidence: Evidence
    source: str
    fp8_tflops: float | None = None


class VendorRoute(msgspec.Struct, frozen=True):
    """How torch uses the GPUs of another vendor than NVIDIA: the vendor's own builds.

    Attributes:
        vendor: ``amd``, ``intel`` or ``apple``; ``name`` is the vendor's name in a sentence.
        words: Regular expression, for lower-case text, of names by which reports show such a GPU.
        build: What the vendor's builds are called; ``device`` is the device of torch that they add.
        system: ``linux`` or ``windows``, if the route is for one only.
        command: What installs them; ``page`` is the vendor's own description if one command does not do it.
        images: Regular expression of references of container images that hold the vendor's builds.
    """

    vendor: str
    name: str
    words: str
    build: str
    device: str
    evidence: Evidence
    source: str
    system: str | None = None
    command: str | None = None
    page: str | None = None
    images: str | None = None


class JobLabel(msgspec.Struct, frozen=True):
    """A scheduler's name for a fact of a node, in the requirements of jobs.

    Attributes:
        engine: ``kubernetes``, ``htcondor`` or ``skypilot``.
        fact: ``driver-major``, ``capability``, ...; of SkyPilot, a GPU with its memory in GiB: ``a100-80``.
        name: The label, the attribute, or the command of a submit file.
    """

    engine: str
    fact: str
    name: str
    evidence: Evidence
    source: str


class MachineName(msgspec.Struct, frozen=True):
    """A common name of a machine or its system, and the target string for it.

    Attributes:
        name: As it is suggested: ``g5.xlarge``, ``JetPack 6.2``.
        words: Regular expression, for lower-case text, of the names that mean it.
        means: Target string.
    """

    name: str
    words: str
    means: str
    evidence: Evidence
    source: str


class GpuModel(Fact, frozen=True):
    """A GPU as people name it.

    Attributes:
        data_centre: Whether it is one on which NVIDIA supports forward compatibility (rule 8).
        first_driver: Lowest Linux driver version whose release notes say that it supports the GPU. A beta, or the
            driver of a CUDA toolkit, may have run it some weeks before; and branches overlap in time, so that a higher
            version that is older than the GPU may not know it. So no rule refuses a driver for this.
        listed_in: Where no such notes are known, the lowest version whose own list of GPUs has the GPU.
        pci_ids: PCI device ids (vendor 10de), lower-case hexadecimal: ``2684``.
        system: For a GPU that exists only in machines of one kind: their system as a target string, with the oldest C
            library of those systems, ``linux-aarch64, glibc 2.39``.
    """

    name: str
    compute_capability: str
    evidence: Evidence
    source: str
    aliases: tuple[str, ...] = ()
    data_centre: bool = False
    first_driver: str | None = None
    listed_in: str | None = None
    pci_ids: tuple[str, ...] = ()
    system: str | None = None


class Architecture(Fact, frozen=True):
    """Life of a compute capability: the first driver branch that knows it and the last that still supports it.

    Attributes:
        island: True for Tegra parts, which do not share code with desktop parts of the same major.
        own_index: A package index with builds for these GPUs alone, none of which the catalogue describes.
    """

    compute_capability: str
    name: str
    first_driver: str | None
    last_branch: str | None
    evidence: Evidence
    source: str
    island: bool = False
    alias_of: str | None = None
    own_index: str | None = None


class ArchName(Fact, frozen=True):
    """A name that ``TORCH_CUDA_ARCH_LIST`` may hold instead of numbers.

    Attributes:
        name: ``Turing``.
        entries: The numbers that ``torch.utils.cpp_extension`` puts in its place, ``7.5+PTX``.
    """

    name: str
    entries: str
    evidence: Evidence
    source: str


# CUDA toolkits, the packages that make up a compiler, and Triton's assemblers.


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


class TritonRelease(Fact, frozen=True):
    """A Triton release line and the assemblers it bundles.

    Attributes:
        min_cc: Lowest compute capability that it supports.
        arch_specific_from: Lowest compute capability for which it asks its ptxas for arch-specific code (``sm_90a``);
            None if the wheel's sources do not show it.
        needs: Requirements that it imports without declaring them.
        host_needs: What its launcher needs of the host at run time: ``c-compiler``, ``python-headers``, and
            ``libcuda-link`` for a ``libcuda.so`` that a linker finds.
        targets: Compute capabilities that its compiler writes PTX for, whichever ptxas then reads it; empty if that
            was not tried.
        no_matrix_product: Compute capabilities for which it was tried and compiles only simpler kernels: every
            ``tl.dot`` ends in an error of its compiler, with either ptxas.
        ptxas_first: Oldest CUDA version whose ptxas it was tried with in place of its own, and works with.
        ptxas_last: Newest CUDA version whose PTX its table knows; None if it knows all that are to come.
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


class Toolkit(Fact, frozen=True):
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

    @property
    def cuda_version(self) -> CudaVersion:
        """The release without its patch level, ``12.8``."""
        return CudaVersion.parse(self.version)


class CompilerPackages(Fact, frozen=True):
    """The packages of one package manager that together make up a CUDA compiler, or a part of one.

    Attributes:
        manager: ``pip``, ``conda`` or ``apt``.
        first: First CUDA version (``13.0``) for which they do; ``last`` is the last, None for the newest.
        packages: Requirements in the manager's own form, ``nvidia-cuda-nvcc=={cuda}.*``.
        provides: What they hold: ``nvcc`` (the driver program), ``ptxas``, ``headers``, ``cudart``, ``libdevice``.
        libraries: Packages of further parts of the toolkit, with their headers, by the part: ``curand``.
        home: Value of ``CUDA_HOME`` then, relative to the environment; None without a whole tree.
        ptxas: Path of the ptxas, relative to the directory of packages; None if nobody looked for it.
        ptxas_packages: Packages that hold only the ptxas.
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


# Container images, what their drivers must be, and the distributions that they are made of.


class Image(Fact, frozen=True):
    """The container images of one release on one distribution.

    Attributes:
        repository: ``nvidia/cuda``, ``pytorch/pytorch`` or ``python``.
        version: First part of the tags: the version of the toolkit (``12.9.1``), of torch, or of Python (``3.12``).
        kinds: Middle parts of the tags: ``base``, ``runtime``, ``cudnn-devel``, ``cuda12.6-cudnn9-runtime``. None for
            a repository of which every tag has neither CUDA nor packages that use it.
        cuda: Toolkit version inside; empty if the kinds give it or the image has none.
        distribution: Last part of the tags, a key of ``distributions.json``; empty if tags end with the kind.
        cudnn: cuDNN in the kinds that have it, ``9.8.0``; None if it is not known.
        architectures: ``x86_64``, ``aarch64``.
        retired: Whether its publisher has retired it: such tags get deleted.
        holds: Packages in it that its publisher built himself, so that no other record describes these builds.
        python: Version of the Python in it, if that is not the one of the distribution.
    """

    repository: str
    version: str
    kinds: tuple[str, ...]
    evidence: Evidence
    source: str
    cuda: str = ""
    distribution: str = ""
    cudnn: str | None = None
    architectures: tuple[str, ...] = ()
    retired: bool = False
    holds: tuple[str, ...] = ()
    python: str = ""

    @property
    def tags(self) -> tuple[str, ...]:
        """The whole tags, ``12.9.1-cudnn-devel-ubuntu22.04``."""
        return tuple("-".join(filter(None, (self.version, kind, self.distribution))) for kind in self.kinds)


class OlderDrivers(msgspec.Struct, frozen=True):
    """Driver branches that are accepted with GPUs of some brands: there the image's compat ``libcuda`` may work.

    Attributes:
        brands: As the container runtime names them, ``tesla``.
    """

    brands: tuple[str, ...]
    branches: tuple[str, ...]


class ImageRequirement(Fact, frozen=True):
    """``NVIDIA_REQUIRE_CUDA`` of the ``nvidia/cuda`` images of one toolkit release, as most of them have it.

    Attributes:
        version: Toolkit release in the tags, ``12.9.1``.
        cuda: The container runtime starts the image where the driver reports this CUDA version or a newer one, ...
        or_drivers: ... or where one of these holds.
    """

    version: str
    cuda: str
    evidence: Evidence
    source: str
    or_drivers: tuple[OlderDrivers, ...] = ()


class Distribution(Fact, frozen=True):
    """A release of a Linux distribution.

    Attributes:
        name: As image tags write it, ``ubuntu22.04``.
        libc: ``glibc 2.35``.
        python: Version of its own ``python3``; ``gcc`` is the major of its own gcc.
    """

    name: str
    evidence: Evidence
    source: str
    libc: str | None = None
    python: str | None = None
    gcc: int | None = None


def toolkit_of(cuda: str | None, toolkits: Iterable[Toolkit]) -> Toolkit | None:
    """Return the toolkit release of a CUDA version, ``12.8`` or ``12.8.1``; None if it is unknown."""
    wanted = CudaVersion.parse(cuda) if cuda else None
    return next((toolkit for toolkit in toolkits if toolkit.cuda_version == wanted), None)


def branch_of(driver: str | None, branches: Iterable[DriverBranch]) -> DriverBranch | None:
    """Return the branch of a driver version, ``550.54.15``; None if it is not known."""
    wanted = DriverVersion.parse(driver or "").branch
    return next((known for known in branches if DriverVersion.parse(known.branch).branch == wanted), None)
