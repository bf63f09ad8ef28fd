"""``nvcc-arch-unknown``: an architecture that nvcc, or torch's own table, does not know."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envsolve.diagnose.causes._shared import by_triton, gpu_names, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import nvcc_remedies
from envsolve.diagnose.remedies.torch import archs_for, replacements
from envsolve.diagnose.scene import Scene
from envsolve.facts.hardware import Toolkit, toolkit_of
from envsolve.machine.model import Gpu
from envsolve.rules.nvidia.code import best_code
from envsolve.values import Arch, ComputeCapability, CudaVersion

_UNKNOWN = (
    "Every nvcc knows the architectures from its first to its last: this one{which} does not know {arch}, which "
    "{why}. The card itself is in order, and the driver has no part in it. Either an nvcc that knows it is used, or "
    "code for another architecture that the card also runs is asked for."
)
_TABLE = (
    "Torch checks TORCH_CUDA_ARCH_LIST against a table of its own, and {entry} is not in this release's: the name of "
    "an architecture may be newer than torch, older, or have changed (10.1 became 11.0 with CUDA 13). The list only "
    "has to name the cards that the code will run on."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Which toolkits know the architecture, and what else the card runs."""
    if match := scene.first("torch-arch"):
        text = _TABLE.format(entry=match.groups["cc"])
        evidence = (*lines(match), *_list_line(scene), *scene.gpu_evidence)
        yield Finding("nvcc-arch-unknown", Grounds.STATED, text, evidence, tuple(_shorter(scene, match.groups["cc"])))
        return
    match = scene.first("nvcc-arch", "nvcc-arch-value") or (None if by_triton(scene) else scene.first("ptxas-no-arch"))
    if match is None:
        return
    arch = match.groups["arch"]
    toolkit = _in_use(scene)
    knowing = [t for t in scene.catalogue.toolkits if _knows(t, arch)]
    why, confirmed = _why(knowing, toolkit)
    which = f", of CUDA {toolkit.version}," if toolkit else ""
    text = _UNKNOWN.format(which=which, arch=arch, why=why)
    evidence = (*lines(match), *_list_line(scene), *scene.gpu_evidence)
    grounds = Grounds.CONFIRMED if confirmed else Grounds.STATED
    yield Finding("nvcc-arch-unknown", grounds, text, evidence, tuple(_remedies(scene, arch, toolkit, knowing)))


def _list_line(scene: Scene) -> tuple[str, ...]:
    listed = scene.report.variables.get("TORCH_CUDA_ARCH_LIST")
    return (f"{listed.where}: {listed.quote}",) if listed else ()


def _in_use(scene: Scene) -> Toolkit | None:
    version = scene.report.nvcc.value if scene.report.nvcc else None
    if version is None and scene.machine.toolkits and len(scene.machine.toolkits) == 1:
        version = scene.machine.toolkits[0].version
    return toolkit_of(version, scene.catalogue.toolkits)


def _knows(toolkit: Toolkit, arch: str) -> bool:
    return arch.replace("compute_", "sm_") in toolkit.archs


def _why(knowing: list[Toolkit], toolkit: Toolkit | None) -> tuple[str, bool]:
    if not knowing:
        return "no toolkit that is known has", False
    first, last = knowing[0], knowing[-1]
    if toolkit and toolkit.cuda_version < CudaVersion.parse(first.version):
        return f"CUDA {first.version} was the first to know", True
    if toolkit and toolkit.cuda_version > CudaVersion.parse(last.version):
        return f"CUDA {last.version} was the last to know", True
    return f"CUDA {first.version} to {last.version} know", False


def _remedies(scene: Scene, arch: str, toolkit: Toolkit | None, knowing: list[Toolkit]) -> Iterator[Remedy]:
    cc = Arch.parse(arch).cc
    meant = scene.gpus or ()
    if toolkit and meant and all(gpu.cc != cc for gpu in meant) and not _needed(meant, cc):
        yield Remedy(
            f"Leave {arch} out: the machine has {gpu_names(meant)}. Name that alone.",
            f'export TORCH_CUDA_ARCH_LIST="{archs_for(scene, meant)}"',
        )
    if toolkit:
        level, other = best_code(toolkit.archs, cc, scene.facts.architectures)
        if other is not None and level.usable:
            text = (
                f"Ask for {other.cc} in place of {cc}: this nvcc knows it, and its machine code runs on cc {cc} "
                f"(same major)."
            )
            yield Remedy(text, f'export TORCH_CUDA_ARCH_LIST="{other.cc}"')
    if meant and not _needed(meant, cc):
        return
    torch = scene.torch.cuda if scene.torch else None
    major = CudaVersion.parse(torch or (toolkit.version if toolkit else knowing[-1].version if knowing else "0")).major
    within = [t for t in knowing if CudaVersion.parse(t.version).major == major]
    if within:
        span = f"CUDA {within[0].version} to {within[-1].version} do"
        yield Remedy(f"Use an nvcc that knows {arch} ({span}), within torch's CUDA major.")
        own = torch if torch and any(t.cuda_version == CudaVersion.parse(torch) for t in within) else within[0].version
        yield from nvcc_remedies(scene, own)
    elif knowing:
        span = f"CUDA {knowing[0].version} to {knowing[-1].version}"
        yield Remedy(f"{arch} needs an nvcc of {span}, and so a torch built for that CUDA.")
        yield from replacements(scene)


def _needed(gpus: Sequence[Gpu], cc: ComputeCapability) -> bool:
    """Whether code for ``cc`` is what one of the cards would run: same major, not newer."""
    return any(gpu.cc and gpu.cc.major == cc.major and gpu.cc >= cc for gpu in gpus)


def _shorter(scene: Scene, entry: str) -> Iterator[Remedy]:
    """The list of the cards at hand, else the list as it is without the entry."""
    listed = scene.report.variables.get("TORCH_CUDA_ARCH_LIST")
    if scene.gpus:
        text = f"Name only the GPUs that the code will run on, {gpu_names(scene.gpus)}, and leave {entry} out."
        yield Remedy(text, f'export TORCH_CUDA_ARCH_LIST="{archs_for(scene, scene.gpus)}"')
    elif listed:
        rest = [part for part in re.split(r"[;\s]+", listed.value.strip("\"'")) if part and part != entry]
        yield Remedy(f"Leave the entry {entry} out.", f'export TORCH_CUDA_ARCH_LIST="{" ".join(rest)}"')
    else:
        yield Remedy(
            f"Set the list to the cards at hand, without the entry {entry}.",
            'export TORCH_CUDA_ARCH_LIST="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | '
            'paste -sd\\;)"',
        )
    yield Remedy("Or use a torch whose table has it: a newer one for a new card.")
