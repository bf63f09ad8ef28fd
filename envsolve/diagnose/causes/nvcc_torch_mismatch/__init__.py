"""``nvcc-torch-mismatch``: the CUDA of nvcc is not torch's (rule 10)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, driver_text, gpu_names, lines, torch_evidence
from envsolve.diagnose.causes.nvcc_missing import nvcc_fixes
from envsolve.diagnose.fixes import replacements, with_another_python
from envsolve.diagnose.model import Finding, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import toolkit_for
from envsolve.machine.model import Gpu
from envsolve.rules.nvidia.code import libraries_serve
from envsolve.values import CudaVersion, Variant

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """An nvcc of torch's CUDA helps only if that CUDA supports the GPU."""
    if match := CAUSE.first(scene, "requested"):
        yield from _requested(scene, match)
    if match := CAUSE.first(scene, "option"):
        nvcc = f" (CUDA {scene.nvcc})" if scene.nvcc else ""
        newer = nvcc_fixes(scene, scene.toolkit or toolkit_for(scene))
        yield CAUSE.finding("option", Grounds.STATED, lines(match), newer, nvcc=nvcc, **match.groups)
    if match := CAUSE.first(scene, "least"):
        yield _too_old(scene, match)
    match = CAUSE.first(scene)
    if match is None or (
        match.signature.id == "nvcc-torch-deepspeed"
        and scene.mentions("accepting this combination")
        and not scene.mentions("unable to compile")
    ):
        return
    torch = match.groups["torch"]
    evidence = (*lines(match), *torch_evidence(scene), *scene.gpu_evidence)
    if gpus := unsupported_gpus(scene, torch):
        another = with_another_python(scene)
        fixes = [another] if another else replacements(scene)
        yield CAUSE.finding("gpu", Grounds.CONFIRMED, evidence, fixes, torch=torch, gpus=gpu_names(gpus))
    else:
        # An nvcc does not help a torch that the driver does not run.
        refused = scene.driver is not None and scene.fit(torch).reason.ok is False
        fixes = [*(replacements(scene) if refused else ()), *nvcc_fixes(scene, torch)]
        values = {"torch": torch, "nvcc": nvcc_used(scene, match), "driver": driver_text(scene)}
        yield CAUSE.finding("driver" if refused else "mismatch", Grounds.CONFIRMED, evidence, fixes, **values)


def _too_old(scene: Scene, match: Match) -> Finding:
    """The setup of a package refuses the nvcc that it found, or the CUDA of torch, as too old."""
    least, torch = match.group("least", "higher", "newer") or "", scene.torch.cuda if scene.torch else None
    package = match.group("package", "by")
    values = {"package": f"{package} " if package else "", "least": least}
    evidence = (*lines(match), *torch_evidence(scene))
    consequences = ("nvcc-missing", "cuda-home-elsewhere", "build-isolation")
    if torch and CudaVersion.parse(torch) < CudaVersion.parse(least):
        newer = [v for v in scene.family.variants if v.startswith("cu") and _cuda_of(v) >= CudaVersion.parse(least)]
        fixes = replacements(scene, variants=newer)
        return CAUSE.finding("least-torch", Grounds.STATED, evidence, fixes, consequences, torch=torch, **values)
    wanted = torch or toolkit_for(scene)
    nvcc = nvcc_used(scene, match)
    fixes = nvcc_fixes(scene, wanted)
    words = {"torch": torch or "not known here", "nvcc": nvcc if nvcc != wanted else "another CUDA", **values}
    return CAUSE.finding("least", Grounds.STATED, evidence, fixes, consequences, **words)


def _cuda_of(variant: str) -> CudaVersion:
    parsed = Variant.parse(variant)
    return CudaVersion.parse(parsed.version if parsed and parsed.version else "0")


def _requested(scene: Scene, match: Match) -> Iterator[Finding]:
    """conda refuses an nvcc of another CUDA than the environment's torch."""
    torch, nvcc = scene.torch.cuda if scene.torch else None, match.group("nvcc", "other") or ""
    if torch is None or CudaVersion.parse(torch) == CudaVersion.parse(nvcc):
        return
    command = next((s.value for s in scene.report.commands if "cuda-nvcc" in s.value or "cuda-toolkit" in s.value), "")
    environment = re.search(r"(?<!\S)(?:-n|--name|-p|--prefix)[ =]\S+", command)
    channel = "nvidia" if "nvidia" in command else "conda-forge"
    values = {"torch": torch, "nvcc": nvcc, "env": f" {environment[0]}" if environment else "", "channel": channel}
    evidence = (*lines(match), *torch_evidence(scene))
    yield CAUSE.finding("requested", Grounds.CONFIRMED, evidence, [CAUSE.fix("request", **values)], **values)


def unsupported_gpus(scene: Scene, cuda: str) -> list[Gpu]:
    """The GPUs that no toolkit of a CUDA version supports."""
    known = [(gpu, gpu.cc) for gpu in scene.gpus]
    toolkits, architectures = scene.facts.toolkits, scene.facts.architectures
    return [gpu for gpu, cc in known if cc and libraries_serve(cuda, cc, toolkits, architectures).ok is False]


def nvcc_used(scene: Scene, match: Match) -> str:
    """The CUDA version of the nvcc that the build used, as far as the report shows it."""
    nvcc = match.groups.get("nvcc") or scene.nvcc
    return nvcc or next((t.version for t in scene.machine.toolkits or () if t.version), None) or "another CUDA"
