"""``nvcc-missing``, ``nvcc-torch-mismatch`` and ``cuda-home-elsewhere``: the compiler beside torch (rule 10)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.compat.code import libraries_serve
from envsolve.compat.versions import minor
from envsolve.diagnose.causes._say import cards, lines
from envsolve.diagnose.finding import Finding, Grounds, RuledOut
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.remedies.compiler import nvcc_remedies
from envsolve.diagnose.remedies.torch import replacements, with_another_python
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.machine.model import Toolkit

_MISMATCHES = ("nvcc-torch", "nvcc-torch-apex", "nvcc-torch-deepspeed")

_MISMATCH = (
    "An extension shares torch's CUDA libraries, so it must be compiled by an nvcc of torch's own CUDA: torch has "
    "{torch}, the nvcc in use is of {nvcc}. The driver's CUDA version, which nvidia-smi shows, has no part in this. "
    "An nvcc of CUDA {torch} in the environment is enough; the system's may stay."
)
_CARD = (
    "An extension must be compiled by an nvcc of torch's own CUDA, here {torch}; but no toolkit of {torch} knows "
    "{cards}, so neither that nvcc nor this torch can serve the card. Another nvcc would only move the failure to "
    "run time. Torch itself has to move to a CUDA that knows the card; the extension then follows."
)
_ELSEWHERE = (
    "The build takes the toolkit that CUDA_HOME (or CUDA_PATH) names, else the nvcc on PATH, else /usr/local/cuda; "
    "here it took CUDA {nvcc}, and torch needs {torch}. A toolkit of the right version is there, at another place. "
    "CUDA_HOME must name it."
)
_MISSING = (
    "Compiling CUDA code needs nvcc, the toolkit's compiler. Torch's wheels bring CUDA's run-time libraries and no "
    "compiler, so that CUDA works in torch while a build finds nothing. An nvcc of torch's own CUDA version is "
    "needed, and CUDA_HOME must name its folder."
)
_GONE = (
    "CUDA_HOME, or what the build takes for it, names a folder without nvcc: {path}. A toolkit was moved, removed, "
    "or is of the runtime kind, which has no compiler. CUDA_HOME must name a folder that has bin/nvcc."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Which CUDA torch has, which nvcc is used, which others there are."""
    if match := scene.first(*_MISMATCHES):
        yield from _mismatch(scene, match)
    elif match := scene.first("nvcc-path-missing"):
        text = _GONE.format(path=match.group("path", "other"))
        yield Finding(
            "cuda-home-elsewhere",
            Grounds.STATED,
            text,
            lines(match),
            (*_set_home(scene, _cuda(scene, None)), *nvcc_remedies(scene, _cuda(scene, None))),
        )
        yield Finding(
            "nvcc-missing",
            Grounds.SUGGESTED,
            _MISSING,
            lines(match),
            (*_set_home(scene, _cuda(scene, None)), *nvcc_remedies(scene, _cuda(scene, None))),
        )
    elif match := scene.first("cuda-home-unset", "nvcc-absent", "cmake-no-cuda"):
        remedies = (*_set_home(scene, _cuda(scene, None)), *nvcc_remedies(scene, _cuda(scene, None)))
        yield Finding("nvcc-missing", Grounds.STATED, _MISSING, lines(match), remedies)


def _cuda(scene: Scene, match: Match | None) -> str | None:
    stated = match.group("torch") if match else None
    return stated or (scene.torch.cuda if scene.torch else None)


def _mismatch(scene: Scene, match: Match) -> Iterator[Finding]:
    torch = match.groups["torch"]
    nvcc = match.group("nvcc") or (".".join(scene.report.nvcc.value.split(".")[:2]) if scene.report.nvcc else None)
    nvcc = nvcc or next((t.version for t in scene.machine.toolkits or () if t.version), None) or "another CUDA"
    evidence = (*lines(match), *(scene.torch.evidence if scene.torch else ()), *scene.gpu_evidence)
    unknown = [
        gpu
        for gpu in scene.gpus
        if gpu.cc and libraries_serve(torch, gpu.cc, scene.facts.toolkits, scene.facts.architectures).ok is False
    ]
    if unknown:
        another = with_another_python(scene)
        remedies = [another[1]] if another else list(replacements(scene))
        text = _CARD.format(torch=torch, cards=cards(unknown))
        yield Finding("nvcc-torch-mismatch", Grounds.CONFIRMED, text, evidence, tuple(remedies))
        return
    other = _toolkit_of(scene, torch)
    if other is not None and _elsewhere(scene, nvcc):
        text = _ELSEWHERE.format(torch=torch, nvcc=nvcc)
        remedies = [*_set_home(scene, torch)]
        found = frozenset({"nvcc-torch-mismatch"})
        yield Finding("cuda-home-elsewhere", Grounds.CONFIRMED, text, evidence, tuple(remedies), found)
    text = _MISMATCH.format(torch=torch, nvcc=nvcc)
    yield Finding(
        "nvcc-torch-mismatch",
        Grounds.CONFIRMED,
        text,
        evidence,
        (*_set_home(scene, torch), *nvcc_remedies(scene, torch)),
    )


def _elsewhere(scene: Scene, nvcc: str) -> bool:
    """Whether the wrong toolkit was taken although the right one is there."""
    versions = {minor(t.version) for t in scene.machine.toolkits or () if t.version}
    return minor(nvcc) in versions and len(versions) > 1


def _toolkit_of(scene: Scene, cuda: str | None) -> Toolkit | None:
    known = scene.machine.toolkits or ()
    return next(
        (t for t in known if cuda and t.version and minor(t.version) == minor(cuda) and t.nvcc is not False), None
    )


def _set_home(scene: Scene, cuda: str | None) -> Iterator[Remedy]:
    toolkit = _toolkit_of(scene, cuda)
    if toolkit is None:
        if cuda and scene.os != "windows":
            text = f"If the machine has a toolkit of CUDA {cuda} (ls -d /usr/local/cuda-*), name it to the build."
            yield Remedy(text, f"export CUDA_HOME=/usr/local/cuda-{cuda} PATH=/usr/local/cuda-{cuda}/bin:$PATH")
        return
    home = toolkit.path or f"/usr/local/cuda-{cuda}"
    text = f"Name the toolkit of CUDA {cuda} to the build."
    yield Remedy(text, f"export CUDA_HOME={home} PATH={home}/bin:$PATH && unset CUDA_PATH")
