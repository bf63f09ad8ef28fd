"""``nvcc-missing``: there is no nvcc, or nothing says where it is (rule 10)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.causes._toolkits import fault_of, nvcc_fixes, torch_cuda
from envsolve.diagnose.model import Finding, Grounds
from envsolve.diagnose.scene import Scene

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """The words name nvcc; a path without it may also be a wrong CUDA_HOME."""
    match fault_of(scene):
        case ("missing" | "path") as fault, match:
            grounds = Grounds.STATED if fault == "missing" else Grounds.SUGGESTED
            yield CAUSE.finding("missing", grounds, lines(match), nvcc_fixes(scene, torch_cuda(scene)))
