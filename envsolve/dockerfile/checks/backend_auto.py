"""uv told to find out the CUDA flavour by itself: no GPU is there to ask as an image is built."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.offers import running
from envsolve.dockerfile.packages import Asked


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """``--torch-backend auto`` takes CPU builds where it sees no driver. Source: uv's guide "Using uv with PyTorch"."""
    for install in asked.installs(stage.commands):
        if install.backend == "auto" and any(asked.offers(wanted.name) for wanted in install.wanted):
            best = next(running(asked.offers("torch"), asked.within(stage)), None)
            remedies = (
                (f"--torch-backend {best.build.variant}",) if best else ("name the flavour: --torch-backend cu126",)
            )
            text = "uv is told to take the flavour of the driver that it sees, and sees none as an image is built: it "
            text += "takes CPU builds"
            yield Finding(install.command.line, "backend-auto", "error", text, remedies)
