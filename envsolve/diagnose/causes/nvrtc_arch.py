"""``nvcc-arch-unknown`` of kernels that are compiled at run time: the NVRTC at hand does not know the card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envsolve.diagnose.causes._shared import gpu_names, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import replacements
from envsolve.diagnose.scene import Scene
from envsolve.facts.hardware import Toolkit
from envsolve.machine.model import Gpu
from envsolve.values import CudaVersion

_UNKNOWN = (
    "Torch compiles some kernels while the program runs, with NVRTC, the compiler library of the CUDA that it is built "
    "for{which}. NVRTC refuses the architecture of {card}, since that CUDA is older than the card, or newer and has "
    "dropped it{known}. Kernels that torch brings compiled may run all the same; the toolkit on the machine and the "
    "driver have no part in it."
)
_ANOTHER = (
    "NVRTC, the compiler library of CUDA, refuses the architecture of {card}. That of torch's own CUDA, {cuda}, knows "
    "it: so the program loads another NVRTC, of a CUDA that does not."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Whether the toolkit of torch's CUDA, whose NVRTC a torch wheel brings, knows the cards."""
    match = scene.first("nvrtc-arch")
    if match is None:
        return
    own = next((t for t in scene.catalogue.toolkits if _is_torch_s(scene, t)), None)
    unknown = [gpu for gpu in scene.gpus if own and not _knows(own, gpu)]
    evidence = (*lines(match), *(scene.torch.evidence if scene.torch else ()), *scene.gpu_evidence)
    if own and scene.gpus and not unknown:
        text = _ANOTHER.format(card=gpu_names(scene.gpus), cuda=own.version)
        yield Finding("nvcc-arch-unknown", Grounds.STATED, text, evidence, (_off_the_path(),))
        return
    text = _UNKNOWN.format(
        which=f", here {own.version}" if own else "",
        card=gpu_names(unknown or scene.gpus),
        known=f": {_span(scene, unknown or scene.gpus)}" if scene.gpus else "",
    )
    grounds = Grounds.CONFIRMED if unknown else Grounds.STATED
    yield Finding("nvcc-arch-unknown", grounds, text, evidence, tuple(_remedies(scene)))


def _is_torch_s(scene: Scene, toolkit: Toolkit) -> bool:
    return bool(
        scene.torch and scene.torch.cuda and CudaVersion.parse(scene.torch.cuda) == CudaVersion.parse(toolkit.version)
    )


def _knows(toolkit: Toolkit, gpu: Gpu) -> bool:
    return gpu.cc is not None and gpu.cc.sm in toolkit.archs


def _knowing(scene: Scene, gpus: Sequence[Gpu]) -> list[Toolkit]:
    return [t for t in scene.catalogue.toolkits if all(_knows(t, gpu) for gpu in gpus)]


def _span(scene: Scene, gpus: Sequence[Gpu]) -> str:
    knowing = _knowing(scene, gpus)
    return f"CUDA {knowing[0].version} to {knowing[-1].version} know it" if knowing else "no CUDA that is known has it"


def _remedies(scene: Scene) -> Iterator[Remedy]:
    """A torch whose CUDA knows every card; without one that is known, how to find it."""
    if scene.gpus:
        knowing = [CudaVersion.parse(t.version).variant for t in _knowing(scene, scene.gpus)]
        yield from replacements(scene, variants=knowing)
    else:
        yield Remedy(
            "Install a torch whose CUDA knows the card: on the machine itself envsolve chooses one.",
            "envsolve plan torch",
        )


def _off_the_path() -> Remedy:
    return Remedy(
        "Take other CUDA libraries off the loader's path, so that torch's own NVRTC is loaded.", "unset LD_LIBRARY_PATH"
    )
