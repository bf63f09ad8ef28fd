"""What to run next where the cause is not known: each step tells what the report lacks."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene


def next_steps(scene: Scene) -> tuple[Remedy, ...]:
    """The commands whose output would decide, those that tell most first."""
    return tuple(_steps(scene))


def _steps(scene: Scene) -> Iterator[Remedy]:
    if scene.torch is None or scene.torch.code is None:
        yield Remedy(
            "Add what PyTorch says of itself and of the machine to the report.", "python -m torch.utils.collect_env"
        )
    if scene.driver is None:
        yield Remedy("Add what the driver says.", "nvidia-smi")
    if not scene.report.installed:
        yield Remedy("Add the installed packages.", "python -m pip list")
    if scene.mentions("cuda error", "cudnn", "cublas"):
        yield Remedy(
            "Run the program again so that the error stands where it arises.", "CUDA_LAUNCH_BLOCKING=1 python ..."
        )
    yield Remedy(
        "Prove the environment kernel by kernel: the first check that fails names the cause.",
        "envsolve verify --prefix DIR",
    )
