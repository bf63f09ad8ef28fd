"""Rules 3, 4 and 5: which GPU code runs on which GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from envsolve.facts.builds import ANY, Build
from envsolve.facts.hardware import Architecture, Floor, Ptxas, Toolkit, TritonRelease, toolkit_of
from envsolve.machine.model import Driver
from envsolve.rules.nvidia.driver import driver_runs
from envsolve.rules.verdict import Level, Reason
from envsolve.values import Arch, ComputeCapability, CudaVersion

Architectures = Mapping[str, Architecture]


def sass_level(arch: Arch, cc: ComputeCapability, architectures: Architectures) -> Level:
    """Rule 3: ``sm_XY`` runs on cc ``X.Z`` with ``Z >= Y``, same major only.

    ``a`` forms run on exactly their GPU, ``f`` forms on their family. Tegra parts are islands: their code runs on no
    desktop part, and the other way round. Source: CUDA C++ Programming Guide, "Binary Compatibility" and
    "Family-Specific Features".
    """
    made_for = _current_name(arch.cc, architectures)
    card = _current_name(cc, architectures)
    # Before the suffix is looked at: sm_90a on a 9.0 is native, and on anything else nothing.
    if made_for == card:
        return Level.NATIVE
    if arch.suffix == "a" or made_for.major != card.major or made_for.minor > card.minor:
        return Level.NONE
    if _is_island(made_for, architectures) or _is_island(card, architectures):
        return Level.NONE
    return Level.FAMILY


def ptx_level(arch: Arch, cc: ComputeCapability, architectures: Architectures) -> Level:
    """Rule 4: ``compute_XY`` compiles for any cc >= X.Y; ``a`` forms never forward.

    Source: CUDA C++ Programming Guide, "PTX Compatibility".
    """
    made_for, card = _current_name(arch.cc, architectures), _current_name(cc, architectures)
    if arch.suffix == "a":
        return Level.PTX if made_for == card else Level.NONE
    # The family of an f form is its major from its own minor on, as for SASS: it is not PTX for later generations.
    if arch.suffix == "f":
        return Level.PTX if made_for.major == card.major and made_for <= card else Level.NONE
    return Level.PTX if made_for <= card else Level.NONE


def best_code(names: Iterable[str], cc: ComputeCapability, architectures: Architectures) -> tuple[Level, Arch | None]:
    """The piece of SASS, otherwise of PTX, that a GPU runs, and at which level; ``(NONE, None)`` if it runs neither."""
    best: tuple[Level, Arch | None] = (Level.NONE, None)
    for name in names:
        arch = Arch.parse(name)
        level = (sass_level if arch.kind == "sass" else ptx_level)(arch, cc, architectures)
        # Of equal levels the nearest to the GPU, sm_86 rather than sm_80 on an 8.9, as CUDA's own loader chooses.
        newer = best[1] is not None and level == best[0] and arch.cc > best[1].cc
        if level.rank < best[0].rank or newer:
            best = (level, arch)
    return best


def libraries_serve(
    cuda: str, cc: ComputeCapability, toolkits: Sequence[Toolkit], architectures: Architectures
) -> Reason:
    """Rule 5: cuBLAS, cuDNN, NCCL and NVRTC of a toolkit carry code only for the GPUs which that toolkit knew.

    So PTX in torch is not enough for a GPU younger than the toolkit, or for one that the toolkit dropped. The toolkit
    supports a GPU if SASS that it can make runs there (rule 3). Source: release notes of each toolkit.
    """
    toolkit = toolkit_of(cuda, toolkits)
    if toolkit is None:
        return Reason("libraries", None, f"the GPUs that CUDA {cuda} supports are not known")
    level, _ = best_code(toolkit.archs, cc, architectures)
    verb = "support" if level.usable else "do not support"
    known = f"{toolkit.archs[0]} to {toolkit.archs[-1]}"
    text = f"the libraries of CUDA {toolkit.version} ({known}) {verb} cc {cc}"
    return Reason("libraries", level.usable, text, toolkit.evidence.value, toolkit.source)


def _current_name(cc: ComputeCapability, architectures: Architectures) -> ComputeCapability:
    """The name that newer toolkits use: Thor was 10.1 in CUDA 12 and is 11.0 in CUDA 13."""
    known = architectures.get(str(cc))
    return ComputeCapability.parse(known.alias_of) if known and known.alias_of else cc


def _is_island(cc: ComputeCapability, architectures: Architectures) -> bool:
    known = architectures.get(str(cc))
    return known is not None and known.island


# Rule 6: whether kernels that Triton compiles run on a GPU.


TRITON = "triton"


def chosen_ptxas(release: TritonRelease, cc: ComputeCapability) -> Ptxas | None:
    """The assembler that a Triton release runs for a GPU."""
    for ptxas in release.ptxas:
        first = ComputeCapability.parse(ptxas.min_cc)
        end = ComputeCapability.parse(ptxas.max_cc) if ptxas.max_cc else None
        # Newer releases have a second assembler, for Blackwell. The ranges do not overlap, so the first match
        # is the only one.
        if first <= cc and (end is None or cc < end):
            return ptxas
    return None


def arch_asked(release: TritonRelease, cc: ComputeCapability) -> str:
    """The GPU name that a Triton release gives its ptxas for a GPU: ``sm_90a``."""
    specific = release.arch_specific_from
    return cc.sm + ("a" if specific and cc >= ComputeCapability.parse(specific) else "")


def triton_runs(
    release: TritonRelease,
    cc: ComputeCapability,
    driver: Driver | None,
    os: str | None,
    toolkits: Sequence[Toolkit],
    floors: Sequence[Floor],
) -> Reason:
    """Rule 6: Triton compiles for the GPU, its ptxas knows the arch, and the driver loads that ptxas's cubins.

    A cubin needs the driver family of the ptxas that made it, even where torch's own variant is older. The reason's
    rule is ``triton-gpu`` where the GPU is below what Triton supports, ``triton-matrix`` where its compiler makes
    simple kernels for it but no matrix product, ``triton-driver`` where the driver is too old for the cubins, else
    ``triton``.
    """

    def say(ok: bool | None, text: str, rule: str = "triton") -> Reason:
        return Reason(rule, ok, f"Triton {release.version} {text}", release.evidence.value, release.source)

    if cc < ComputeCapability.parse(release.min_cc):
        return say(False, f"supports cc {release.min_cc} and newer, not {cc}", "triton-gpu")
    ptxas = chosen_ptxas(release, cc)
    if ptxas is None:
        return say(None, f"has no known ptxas for cc {cc}")
    name = arch_asked(release, cc)
    if name not in ptxas.archs:
        return say(False, f"compiles with {ptxas.file} {ptxas.cuda}, which does not know {name}")
    # Asked after the assembler: without one, simple kernels fail too, and that is the stronger statement.
    if str(cc) in release.no_matrix_product:
        return say(False, f"compiles only simpler kernels for cc {cc}, no matrix products", "triton-matrix")
    fit = driver_runs(ptxas.cuda, driver, os, toolkits, floors)
    if fit.reason.ok:
        return say(True, f"compiles {name} with {ptxas.file} {ptxas.cuda}, whose cubins this driver loads")
    if fit.reason.ok is None:
        return say(None, f"compiles {name} with {ptxas.file} {ptxas.cuda}, which needs driver {fit.required}")
    have = (driver.version or f"one for CUDA {driver.cuda}") if driver else None
    text = (
        f"compiles {name} with {ptxas.file} {ptxas.cuda}, whose kernels need driver {fit.required} or newer, not {have}"
    )
    return say(False, text, "triton-driver")


# Rule 9: the torch family of one environment agrees on variant and torch minor.


_specifier = lru_cache(maxsize=1024)(SpecifierSet)


_CUDA_SUFFIX = re.compile(r"^(nvidia-[a-z0-9-]+)-cu(\d+)\b")


def cuda_suffix(requirement: str) -> tuple[str, int] | None:
    """A library of the CUDA runtime and the CUDA major that its name says: ``nvidia-cublas-cu12`` as (stem, 12)."""
    match = _CUDA_SUFFIX.match(requirement)
    return (match[1], int(match[2])) if match else None


_CUDA_IN_NAME = re.compile(r"-cu(?:da)?(1\d)\d?x?(?=-|$)")


def cuda_in_name(name: str) -> int | None:
    """The CUDA major that the normalised name of a package says: 13 of ``tensorrt-cu13`` and ``cupy-cuda13x``."""
    match = _CUDA_IN_NAME.search(name)
    return int(match[1]) if match else None


#: How the name of a package says that it is built for CUDA.
_GPU_PACKAGE = re.compile(r"-(?:gpu|cuda\d+x?)(?=-|$)|-cu\d+$")


def is_gpu_package(name: str) -> bool:
    """Whether the normalised name of a package says that it has GPU code: ``mxnet-cu112``; a library's does not."""
    return _GPU_PACKAGE.search(name) is not None and cuda_suffix(name) is None


def serves_cuda(companion: Build, cuda: str | None) -> bool:
    """Whether a companion that chooses by torch's CUDA version supports this one; None means a CPU build."""
    return cuda is not None and companion.torch_cuda is not None and _specifier(companion.torch_cuda).contains(cuda)


def agrees(companion: Build, torch: Build, agrees_on: str) -> Reason:
    """Rule 9: a companion shares torch's variant or CUDA major, and this torch is one that its ABI accepts.

    The answer is None if only optional kernels do not load beside this torch: the rest of the companion works.

    Source: METADATA of the companions, and PyTorch's compatibility table where METADATA is silent.

    Args:
        companion: A build of another package of the family.
        torch: A build of torch.
        agrees_on: ``variant``, ``major`` or ``nothing``: see :class:`FamilyMember`.
    """
    pair = f"{companion.package} {companion.version} [{companion.variant}] with torch {torch.version} [{torch.variant}]"
    same = companion.variant in (ANY, torch.variant) or agrees_on == "nothing"
    # A companion that says which CUDA versions it accepts knows better than the name of its variant.
    if companion.torch_cuda:
        same = serves_cuda(companion, torch.cuda)
    elif agrees_on == "major" and companion.cuda and torch.cuda:
        same = CudaVersion.parse(companion.cuda).major == CudaVersion.parse(torch.cuda).major
    if not same:
        text = f"{pair}: different variants, {companion.variant} and {torch.variant}"
        return Reason("flavour", False, text, companion.evidence.value, companion.source)
    if companion.torch and not _specifier(companion.torch).contains(torch.version, prereleases=True):
        text = f"{pair}: built against torch{companion.torch}"
        ok = False if companion.needs_its_torch else None
        return Reason("flavour", ok, text, companion.evidence.value, companion.source)
    return Reason("flavour", True, pair, companion.evidence.value, companion.source)


def triton_pin(build: Build) -> str | None:
    """The Triton version that a build pins, ``3.6.0``; None if it pins none."""
    return _triton_pin(build.requires or ())


@lru_cache(maxsize=4096)
def _triton_pin(requires: tuple[str, ...]) -> str | None:
    for line in requires:
        if line.startswith(("triton=", "triton~", "triton (", "pytorch-triton=", "triton ")):
            return _pinned(line)
    return None


@lru_cache(maxsize=1024)
def _pinned(line: str) -> str | None:
    specifier = next(iter(Requirement(line).specifier), None)
    return specifier.version if specifier else None
