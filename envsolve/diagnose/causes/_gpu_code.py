"""Whose code the words "no kernel image" are about: torch's own, an extension's, or nobody's.

The words say that some binary lacks code for the GPU. Whether that binary is torch itself, the catalogue says; if torch
runs on the GPU, an extension is meant.
"""

from __future__ import annotations

from typing import Literal

from envsolve.diagnose.causes._shared import Cause
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.machine.model import Gpu
from envsolve.values import ComputeCapability

_CODE = Cause("no-kernel-for-gpu")


def lacking(scene: Scene) -> tuple[Gpu, ...]:
    """The GPUs for which the torch at hand has no code."""
    torch = scene.torch
    return scene.unserved(torch.code, torch.cuda) if torch and torch.code else ()


def failure(scene: Scene) -> Match | None:
    """The error, else the warning, about missing code."""
    return _CODE.first(scene, "error", "warning")


def harmless(scene: Scene) -> Literal["code", "range"] | None:
    """How a warning is known to be harmless: by torch's code, or by the range that the warning itself states."""
    warning = _CODE.first(scene, "warning")
    if warning is None or _CODE.first(scene) or lacking(scene) or not scene.gpus:
        return None
    if scene.torch and scene.torch.code:
        return "code"
    most = warning.group("most")
    code = (ComputeCapability.parse(most).sm,) if most else ()
    return "range" if code and all(scene.level(code, gpu).usable for gpu in scene.gpus) else None


def torch_runs(scene: Scene) -> bool:
    """Whether torch's own kernels are known to run, by its code or by the report."""
    return bool(scene.torch and scene.torch.code and scene.gpus) or scene.first("torch-works") is not None


def about_libtorch(scene: Scene) -> bool:
    """Whether the report is about torch's C++ distribution, whose code the catalogue does not describe."""
    return "libtorch" in scene.report.installed
