"""``arch-list-unset``: an extension was built where other GPUs, or none, were visible."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, gpu_names, lines
from envsolve.diagnose.causes.no_kernel_for_gpu import about_libtorch, failure, harmless, lacking, torch_runs
from envsolve.diagnose.model import Finding, Grounds
from envsolve.diagnose.rebuilding import rebuild
from envsolve.diagnose.scene import Scene

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """The build found no GPU, or the compiled extension lacks GPU code that torch has."""
    if match := CAUSE.first(scene, "empty"):
        explanation = "native" if match.signature.id == "arch-native-blind" else "empty"
        yield CAUSE.finding(explanation, Grounds.STATED, lines(match), rebuild(scene, scene.gpus))
    match, source = failure(scene), scene.first("from-source")
    if match is None or source is None or lacking(scene) or harmless(scene):
        return
    # Only if torch's kernels run there is the extension known to be what lacks code.
    if torch_runs(scene) and not about_libtorch(scene):
        seen = lines(match, source, scene.first("torch-works"), scene.first("arch-list-warning"))
        by_code = scene.torch and scene.torch.code and scene.gpus
        grounds = Grounds.CONFIRMED if by_code else Grounds.STATED
        fixes, gpus = rebuild(scene, scene.gpus), gpu_names(scene.gpus)
        yield CAUSE.finding("elsewhere", grounds, (*seen, *scene.gpu_evidence), fixes, gpus=gpus)
