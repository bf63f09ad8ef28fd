"""``cpu-build``: a build without CUDA code where a GPU is meant to be used."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import conda_remedies, jetson_remedies, led_by, replacements
from envsolve.diagnose.scene import Scene, Torch
from envsolve.diagnose.signatures import Match
from envsolve.machine.model import Platform
from envsolve.rules.platform import same_system
from envsolve.solve.family import DEFAULT

_ERRORS = ("cpu-assert", "cpu-backend", "cpu-local", "cpu-conda", "torch-cuda-none", "cpu-word", "cpu-torch-words")
#: Lines of a list of what there is: nobody complains in them.
_STATES = frozenset({"cpu-local", "cpu-conda", "torch-cuda-none"})
_OF_A_MISSING_GPU = frozenset(
    {
        "cpu-build",
        "no-driver",
        "driver-needs-reload",
        "driver-too-old",
        "torch-replaced",
        "mixed-flavours",
        "index-confusion",
        "no-such-build",
        "virtual-package-missing",
        "no-kernel-for-gpu",
        "nvcc-missing",
    }
)
_WEAK = ("cpu-deserialize", "jax-cpu", "infer-device")

_EXPLANATION = (
    "{what} holds no CUDA code at all, so no driver and no toolkit can make it use a GPU. {why} "
    "A CUDA build of the same version replaces it."
)
_WHY_PLATFORM = (
    "The default index has only CPU builds of torch {version} for {platform}; those with CUDA are on "
    "PyTorch's own index."
)
_WHY_INDEX = "It was taken from an index of CPU builds."
_WHY_CONDA = (
    "A conda solve takes the CPU build where it sees no driver (no __cuda) or where other packages leave no other."
)
_WHY_JETSON = (
    "Indexes for servers have CPU builds for aarch64, or builds for servers' cards; those that a Jetson can use come "
    "from NVIDIA, for each JetPack."
)
_WHY_UNKNOWN = "An installer takes whichever build its index offers first, whatever hardware is there."

_CONSEQUENCES = frozenset({"no-driver"})


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """A CPU build is proved by its own version, by what it says, or by the catalogue."""
    torch = scene.torch
    strong, weak = scene.first(*_ERRORS), scene.first(*_WEAK)
    if weak is None and scene.is_jetson and not _is_nvidias(torch):
        weak = scene.first("cuda-unavailable")
    proved = torch is not None and torch.variant == "cpu"
    if torch is not None and torch.variant and not proved and torch.cuda and strong is None:
        yield RuledOut(f"{torch.label} is a CUDA build")
        return
    if not (strong or weak or proved) or (scene.machine.gpus == () and strong is None):
        return
    other = torch is not None and torch.variant not in (None, "cpu")
    if other and strong and strong.signature.id in ("cpu-local", "cpu-torch-words"):
        return
    # A text that only shows a CPU build's version, on a machine of which no GPU is known, may be what was wanted.
    grounds = Grounds.SUGGESTED
    if strong and proved:
        grounds = Grounds.CONFIRMED
    elif strong and (strong.signature.id != "cpu-torch-words" or scene.first("cuda-unavailable")):
        # People also speak of the CPU build that they do not have.
        grounds = Grounds.STATED
    if strong and strong.signature.id in _STATES and any(_of_another_kind(m) for m in scene.matches):
        grounds = Grounds.SUGGESTED
    # Torch's library for CUDA is part of every CUDA build.
    lacks = scene.first("torch-library-missing")
    lacks = lacks if strong and lacks and "cuda" in lacks.groups["library"] else None
    if lacks:
        grounds = Grounds.CONFIRMED
    elif proved and scene.gpus:
        grounds = Grounds.DERIVED
    evidence = (*lines(strong or weak, lacks), *(torch.evidence if torch else ()), *scene.gpu_evidence)
    what = f"torch {torch.version} [cpu]" if torch and torch.version else "The torch that is installed"
    text = _EXPLANATION.format(what=what, why=_why(scene))
    explains = _CONSEQUENCES | ({"mixed-flavours"} if lacks else frozenset())
    yield Finding("cpu-build", grounds, text, evidence, _remedies(scene), explains)


def _of_another_kind(match: Match) -> bool:
    """Whether words speak of what a GPU, or its absence, has no part in."""
    return bool(match.signature.causes) and not _OF_A_MISSING_GPU & set(match.signature.causes)


def _is_nvidias(torch: Torch | None) -> bool:
    """Whether torch is one of NVIDIA's own builds, ``2.1.0a0+41361538.nv23.06``."""
    return torch is not None and torch.version is not None and "a0" in torch.version


def _why(scene: Scene) -> str:
    if scene.is_jetson:
        return _WHY_JETSON
    torch = scene.torch
    platform = scene.machine.platform or Platform()
    if torch and torch.version:
        here = [
            b
            for b in scene.catalogue.builds("torch")
            if b.version == torch.version and b.index == DEFAULT and same_system(b.platform, platform)
        ]
        if here and all(b.variant == "cpu" for b in here):
            return _WHY_PLATFORM.format(version=torch.version, platform=f"{platform.os} {platform.arch}")
    if scene.mentions("whl/cpu"):
        return _WHY_INDEX
    if scene.mentions("conda", "mamba", "pixi"):
        return _WHY_CONDA
    return _WHY_UNKNOWN


def _remedies(scene: Scene) -> tuple[Remedy, ...]:
    if "jax" in scene.report.installed or scene.first("jax-cpu"):
        return (Remedy("Install jax with its CUDA plug-in.", 'pip install -U "jax[cuda12]"'),)
    by_conda = conda_remedies(scene) if scene.first("cpu-conda") or scene.by_conda else ()
    if jetson := jetson_remedies(scene):
        return (*by_conda, *jetson)
    found = replacements(scene)
    if not by_conda:
        return found
    cuda = (scene.driver.cuda if scene.driver else None) or "12.9"
    blind = led_by("Where the solve runs on a host without a driver, tell the solver that of the target", by_conda[0])
    return (*by_conda, Remedy(blind.text, f"CONDA_OVERRIDE_CUDA={cuda} {by_conda[0].command}"), *found)
