"""Triton's causes before any error: its ptxas and the card, its ptxas and the driver, the card itself (rule 6)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.remedies.tools import driver_running
from envsolve.diagnose.remedies.torch import replacements
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment
from envsolve.facts.hardware import Ptxas, TritonRelease, toolkit_of
from envsolve.rules.nvidia.code import arch_asked, chosen_ptxas, triton_runs
from envsolve.rules.nvidia.driver import driver_runs
from envsolve.values import ComputeCapability

_CAUSES = {
    "triton": "triton-ptxas-lacks-arch",
    "triton-driver": "triton-ptxas-newer-than-driver",
    "triton-gpu": "triton-gpu-unsupported",
    "triton-matrix": "triton-gpu-unsupported",
}
_EXPLANATION = (
    "Triton writes code for the very GPU and runs an assembler, ptxas, that its own wheel brings; what that makes "
    "needs a driver of its CUDA family. {said}. So torch.compile and packages with Triton kernels fail on {card}; "
    "torch's own kernels are not concerned."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Ask rule 6 for the Triton that is imported and every card."""
    triton = environment.distribution("triton") or environment.distribution("pytorch-triton")
    release = scene.facts.tritons.get((triton.version or "").partition("+")[0]) if triton else None
    if triton is None or release is None or environment.torch is None:
        return
    for gpu in scene.gpus:
        if gpu.cc is None or _overridden(scene, chosen_ptxas(release, gpu.cc)):
            continue
        reason = triton_runs(release, gpu.cc, scene.driver, scene.os, scene.facts.toolkits, scene.facts.floors)
        if reason.ok is False:
            text = _EXPLANATION.format(said=reason.text, card=gpu.label)
            evidence = (f"{triton.info}: {triton.label}", *scene.gpu_evidence, *scene.driver_evidence)
            remedies = tuple(_remedies(scene, release, gpu.cc, reason.rule))
            yield Finding(_CAUSES[reason.rule], Grounds.READ, text, evidence, remedies)
            return


def _overridden(scene: Scene, ptxas: Ptxas | None) -> bool:
    return ptxas is not None and ptxas.override in (scene.machine.environment or {})


def _remedies(scene: Scene, release: TritonRelease, cc: ComputeCapability, rule: str) -> Iterator[Remedy]:
    ptxas = chosen_ptxas(release, cc)
    if rule != "triton-gpu":
        if ptxas and rule != "triton-matrix":
            yield from _other_ptxas(scene, ptxas.override, arch_asked(release, cc))
        best = next(iter(scene.family.options("torch")), None)
        if best is not None and best.verdict.triton:
            yield from replacements(scene)[-1:]
        if ptxas and rule == "triton-driver" and (driver := driver_running(scene, ptxas.cuda)):
            yield driver
    yield Remedy("Run without compiling: torch's own kernels work.", "export TORCHDYNAMO_DISABLE=1")


def _other_ptxas(scene: Scene, variable: str, arch: str) -> Iterator[Remedy]:
    """The ptxas of a toolkit on the machine that knows the card and whose cubins the driver loads."""
    for toolkit in scene.machine.toolkits or ():
        known = toolkit_of(toolkit.version, scene.facts.toolkits)
        if known is None or toolkit.path is None or not toolkit.nvcc or arch not in known.archs:
            continue
        if driver_runs(known.version, scene.driver, scene.os, scene.facts.toolkits, scene.facts.floors).reason.ok:
            text = (
                f"Point Triton to the ptxas of the toolkit that is there, CUDA {toolkit.version}, which knows {arch}."
            )
            yield Remedy(text, f"export {variable}={toolkit.path}/bin/ptxas")
            return
