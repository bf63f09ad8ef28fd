"""``triton-gpu-unsupported``: the GPU is older than Triton, or a kernel's instructions, support (rule 6)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import (
    Cause,
    gpu_names,
    installed_fault,
    judged,
    lines,
    pin_of,
    torch_evidence,
    torch_that_compiles,
)
from envsolve.diagnose.fixes import replacements
from envsolve.diagnose.model import Finding, Fix, Grounds, public
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Environment
from envsolve.values import ComputeCapability

CAUSE = Cause.of(__name__)
_GPU_RULES = ("triton-gpu", "triton-matrix")


def from_report(scene: Scene) -> Iterator[Finding]:
    """Triton's own words; a failed pass counts only if rule 6 knows it."""
    if match := CAUSE.first(scene, "error", "feature"):
        least = scene.catalogue.tritons[-1].min_cc if scene.catalogue.tritons else "7.0"
        old = [gpu for gpu in scene.gpus if gpu.cc and gpu.cc < ComputeCapability.parse(least)]
        grounds = Grounds.CONFIRMED if old else Grounds.STATED
        evidence, values = (*lines(match), *scene.gpu_evidence), {"least": least, "gpu": gpu_names(old or scene.gpus)}
        yield CAUSE.finding("unsupported", grounds, evidence, _fixes(scene, match), explains=None, **values)
    if match := CAUSE.first(scene, "clue"):
        yield from _compiler_fails(scene, match)


def _fixes(scene: Scene, match: Match) -> Iterator[Fix]:
    if match.signature.role == "feature":
        yield CAUSE.fix("type")
    yield CAUSE.fix("no-compile")
    if scene.mentions("vllm"):
        yield CAUSE.fix("vllm")


def _compiler_fails(scene: Scene, match: Match) -> Iterator[Finding]:
    """These words can come from any faulty kernel, so rule 6 must confirm it for this Triton and this GPU."""
    version = public(scene.report.installed, "triton") or pin_of(scene)
    release = scene.facts.tritons.get(version) if version else None
    for gpu in scene.gpus if release else ():
        assert release is not None and gpu.cc is not None
        reason = judged(release, gpu.cc, scene)
        if reason.rule in _GPU_RULES and reason.ok is False:
            evidence = (*lines(match), *scene.gpu_evidence, *torch_evidence(scene))
            fixes = (*replacements(scene), CAUSE.fix("or-eager"))
            values = {"reason": reason.text, "gpu": gpu.label}
            yield CAUSE.finding("compiler", Grounds.CONFIRMED, evidence, fixes, explains=(), **values)
            return


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Ask rule 6 about the Triton that is imported and every GPU."""
    yield from installed_fault(CAUSE, ("triton-gpu",), environment, scene, lambda *_: ())
    # No torch helps a GPU that Triton does not support; the matrix instructions are a matter of its version.
    yield from installed_fault(CAUSE, ("triton-matrix",), environment, scene, lambda *_: torch_that_compiles(scene))
