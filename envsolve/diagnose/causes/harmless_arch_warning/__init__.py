"""``harmless-arch-warning``: a warning about the GPU, although code of the same architecture family runs on it."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, gpu_names, lines, torch_evidence
from envsolve.diagnose.causes.no_kernel_for_gpu import failure, harmless
from envsolve.diagnose.model import Finding, Grounds
from envsolve.diagnose.scene import Scene

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """The rules, or the warning itself, say that the code runs there."""
    compiled = scene.first("tensorflow-code")
    if compiled and not any(m.signature.causes for m in scene.matches if m.signature.id != compiled.signature.id):
        yield CAUSE.finding(
            "compiled", Grounds.SUGGESTED, lines(compiled), [CAUSE.fix("cache")], cc=compiled.groups["cc"]
        )
        return
    how, match, torch = harmless(scene), failure(scene), scene.torch
    if how is None or match is None:
        return
    if how == "code" and torch and torch.code:
        code, grounds = " ".join(torch.code), Grounds.CONFIRMED
        evidence = (*lines(match), *torch_evidence(scene), torch.code_from or "", *scene.gpu_evidence)
    else:
        code, grounds = f"that for {match.groups['most']}", Grounds.STATED
        evidence = (*lines(match), *scene.gpu_evidence)
    yield CAUSE.finding("harmless", grounds, evidence, [CAUSE.fix("prove")], code=code, gpus=gpu_names(scene.gpus))
