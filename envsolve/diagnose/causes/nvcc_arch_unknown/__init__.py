"""``nvcc-arch-unknown``: an architecture that nvcc, NVRTC or torch's own table does not know."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from envsolve.diagnose.causes._shared import Cause, by_triton, gpu_names, lines, shown_variable, torch_evidence
from envsolve.diagnose.fixes import replacements
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.rebuilding import archs_for, rebuild
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import nvcc_remedies
from envsolve.facts.hardware import Toolkit
from envsolve.machine.model import Gpu
from envsolve.rules.nvidia.code import best_code
from envsolve.values import Arch, ComputeCapability, CudaVersion

CAUSE = Cause.of(__name__)
_LIST = "TORCH_CUDA_ARCH_LIST"
_REQUESTED = re.compile(r"-gencode[= ]\W?arch=(compute_\d{2,3})\b")


def from_report(scene: Scene) -> Iterator[Finding]:
    """Look up which toolkits know the architecture, and what else the GPU runs."""
    if match := CAUSE.first(scene, "nvrtc"):
        yield _of_cupy(scene, lines(match)) if scene.mentions("cupy") else _of_nvrtc(scene, lines(match))
    if match := CAUSE.first(scene, "table"):
        evidence, entry = (*lines(match), *shown_variable(scene, _LIST), *scene.gpu_evidence), match.groups["cc"]
        yield CAUSE.finding("table", Grounds.STATED, evidence, _shorter(scene, entry), entry=entry)
        return
    match = CAUSE.first(scene) or (None if by_triton(scene) else scene.first("ptxas-no-arch"))
    if match is None:
        return
    arch, toolkit = match.groups["arch"], _in_use(scene)
    knowing = knowing_toolkits(scene, arch)
    if toolkit in knowing:  # so another nvcc ran: see cuda-home-elsewhere
        return
    why, confirmed = _why(knowing, toolkit)
    which = f", of CUDA {toolkit.version}," if toolkit else ""
    evidence = (*lines(match), *shown_variable(scene, _LIST), *scene.gpu_evidence)
    grounds = Grounds.CONFIRMED if confirmed else Grounds.STATED
    fixes = _fixes(scene, arch, toolkit, knowing)
    yield CAUSE.finding("unknown", grounds, evidence, fixes, which=which, arch=arch, why=why)


def knowing_toolkits(scene: Scene, arch: str) -> list[Toolkit]:
    """The toolkits whose nvcc knows an architecture, ``compute_120a``, the oldest first."""
    return [t for t in scene.catalogue.toolkits if arch.replace("compute_", "sm_") in t.archs]


def another_ran(scene: Scene) -> tuple[Match, Toolkit] | None:
    """The error of an nvcc that cannot be the one that the report names, and that one: it knows the architecture."""
    match, toolkit = CAUSE.first(scene), _in_use(scene)
    if match is None or toolkit is None or CAUSE.first(scene, "table"):
        return None
    return (match, toolkit) if toolkit in knowing_toolkits(scene, match.groups["arch"]) else None


def _in_use(scene: Scene) -> Toolkit | None:
    version = scene.nvcc
    if version is None and scene.machine.toolkits and len(scene.machine.toolkits) == 1:
        version = scene.machine.toolkits[0].version
    return scene.toolkit_known(version)


def _why(knowing: list[Toolkit], toolkit: Toolkit | None) -> tuple[str, bool]:
    """Which toolkits know an architecture, and whether that explains why the one in use does not."""
    if not knowing:
        return CAUSE.words("none"), False
    first, last = knowing[0].version, knowing[-1].version
    if toolkit and toolkit.cuda_version < CudaVersion.parse(first):
        return CAUSE.words("first", first=first), True
    if toolkit and toolkit.cuda_version > CudaVersion.parse(last):
        return CAUSE.words("last", last=last), True
    return CAUSE.words("range", first=first, last=last), False


def _fixes(scene: Scene, arch: str, toolkit: Toolkit | None, knowing: list[Toolkit]) -> Iterator[Fix]:
    try:
        cc, gpus = Arch.parse(arch).cc, scene.gpus
    except ValueError:  # a line that broke off, or a name that a user made up
        return
    dropped = bool(knowing) and knowing[-1] != scene.catalogue.toolkits[-1]
    if dropped and not scene.about_torch and _beside_others(scene, arch) and not _required(gpus, cc):
        yield CAUSE.fix("drop", arch=arch)
    if toolkit and gpus and all(gpu.cc != cc for gpu in gpus) and not _required(gpus, cc):
        if scene.about_torch:
            yield CAUSE.fix("leave-out", arch=arch, gpus=gpu_names(gpus), list=archs_for(scene, gpus))
        else:
            yield from rebuild(scene, gpus)
            return
    if toolkit:
        # Code for an older GPU of the same major runs on it, too.
        level, other = best_code(toolkit.archs, cc, scene.facts.architectures)
        if other is not None and level.usable:
            yield CAUSE.fix("other", other=other.cc, cc=cc)
    if not gpus or _required(gpus, cc):
        yield from _knowing_fixes(scene, arch, toolkit, knowing)


def _beside_others(scene: Scene, arch: str) -> bool:
    """Whether the command itself requests newer architectures too, as builds with a list of their own do."""
    requested = {Arch.parse(name).cc for name in _REQUESTED.findall(scene.report.text)}
    return len(requested) > 1 and Arch.parse(arch).cc == min(requested)


def _knowing_fixes(scene: Scene, arch: str, toolkit: Toolkit | None, knowing: list[Toolkit]) -> Iterator[Fix]:
    """An nvcc of torch's CUDA major that supports the architecture; otherwise a torch for another CUDA."""
    torch = scene.toolkit
    own = torch or _for_driver(scene, knowing) or (toolkit.version if toolkit else None)
    major = CudaVersion.parse(own or (knowing[-1].version if knowing else "0")).major
    within = [t for t in knowing if t.cuda_version.major == major]
    if within:
        if torch:
            yield CAUSE.fix("nvcc", arch=arch, first=within[0].version, last=within[-1].version)
        known = own and any(t.cuda_version == CudaVersion.parse(own) for t in within)
        yield from nvcc_remedies(scene, own if own and known else within[0].version)
    elif knowing:
        yield CAUSE.fix("torch", arch=arch, first=knowing[0].version, last=knowing[-1].version)
        yield from replacements(scene)


def _for_driver(scene: Scene, knowing: Sequence[Toolkit]) -> str | None:
    """Without torch, the newest toolkit that the driver supports in full; of an unknown driver, the usual one."""
    have = CudaVersion.parse(scene.driver.cuda if scene.driver and scene.driver.cuda else scene.usual_cuda)
    return next((t.version for t in reversed(knowing) if t.cuda_version <= have), None)


def _required(gpus: Sequence[Gpu], cc: ComputeCapability) -> bool:
    """Whether one of the GPUs would run code for ``cc``: same major, not newer."""
    return any(gpu.cc and gpu.cc.major == cc.major and gpu.cc >= cc for gpu in gpus)


def _shorter(scene: Scene, entry: str) -> Iterator[Fix]:
    """The list of the machine's GPUs, or the list as it is without the entry."""
    listed = scene.report.variables.get(_LIST)
    if any(str(gpu.cc) == entry for gpu in scene.gpus):  # no other entry does for this GPU
        yield from replacements(scene)
    elif scene.gpus:
        yield CAUSE.fix("only", gpus=gpu_names(scene.gpus), entry=entry, list=archs_for(scene, scene.gpus))
    elif listed:
        rest = [part for part in re.split(r"[;\s]+", listed.value.strip("\"'")) if part and part != entry]
        yield CAUSE.fix("without", entry=entry, list=" ".join(rest))
    else:
        yield CAUSE.fix("measured", entry=entry)
    yield CAUSE.fix("newer-torch")


def _of_cupy(scene: Scene, found: Iterable[str]) -> Finding:
    """CuPy compiles with the NVRTC of the toolkit that its wheel is for: the wheel of a CUDA that knows the GPU."""
    knowing = [t for t in scene.catalogue.toolkits if all(_knows(t, gpu) for gpu in scene.gpus)]
    have = CudaVersion.parse(scene.driver.cuda if scene.driver and scene.driver.cuda else "13.9")
    fitting = [t for t in knowing if t.cuda_version.major <= have.major and t.cuda_version.major >= 11]
    fixes = [CAUSE.fix("cupy", major=fitting[-1].cuda_version.major)] if scene.gpus and fitting else [CAUSE.fix("plan")]
    known = CAUSE.words("range-it", first=knowing[0].version, last=knowing[-1].version) if knowing else ""
    values = {"gpu": gpu_names(scene.gpus), "known": f": {known}" if scene.gpus and known else ""}
    return CAUSE.finding("cupy", Grounds.STATED, (*found, *scene.gpu_evidence), fixes, **values)


def _of_nvrtc(scene: Scene, found: Iterable[str]) -> Finding:
    """Whether the toolkit of torch's CUDA, whose NVRTC a torch wheel contains, knows the GPUs."""
    own = scene.toolkit_known(scene.toolkit)
    unknown = [gpu for gpu in scene.gpus if own and not _knows(own, gpu)]
    evidence = (*found, *torch_evidence(scene), *scene.gpu_evidence)
    if own and scene.gpus and not unknown:
        gpus, fix = gpu_names(scene.gpus), CAUSE.fix("path")
        return CAUSE.finding("another-nvrtc", Grounds.STATED, evidence, (fix,), gpu=gpus, cuda=own.version)
    knowing = [t for t in scene.catalogue.toolkits if all(_knows(t, gpu) for gpu in unknown or scene.gpus)]
    words = ("range-it", {"first": knowing[0].version, "last": knowing[-1].version}) if knowing else ("none-it", {})
    return CAUSE.finding(
        "nvrtc",
        Grounds.CONFIRMED if unknown else Grounds.STATED,
        evidence,
        _with_nvrtc(scene),
        which=f", here {own.version}" if own else "",
        gpu=gpu_names(unknown or scene.gpus),
        known=f": {CAUSE.words(words[0], **words[1])}" if scene.gpus else "",
    )


def _knows(toolkit: Toolkit, gpu: Gpu) -> bool:
    return gpu.cc is not None and gpu.cc.sm in toolkit.archs


def _with_nvrtc(scene: Scene) -> Iterable[Fix]:
    """A torch whose CUDA knows every GPU; without one in the catalogue, how to find it."""
    if not scene.gpus:
        return [CAUSE.fix("plan")]
    knowing = [t for t in scene.catalogue.toolkits if all(_knows(t, gpu) for gpu in scene.gpus)]
    return replacements(scene, variants=[t.cuda_version.variant for t in knowing])
