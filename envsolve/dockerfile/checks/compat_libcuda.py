"""A compat ``libcuda`` that the image puts first on the library path, against the machines (rule 8)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.packages import Asked, with_compat
from envsolve.machine.describe import one_line
from envsolve.rules.nvidia.driver import compat_serves
from envsolve.values import CudaVersion


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Judge it where the path names the folder; elsewhere only the container runtime would use it."""
    path = stage.variables.get("LD_LIBRARY_PATH", "")
    image = asked.image(stage)
    if not any(part.rstrip("/").endswith("compat") for part in path.split(":")) or image is None or not image.cuda:
        return
    cuda = str(CudaVersion.parse(image.cuda))
    for machine in asked.machines:
        reason = compat_serves(with_compat(machine, cuda), asked.facts.forward)
        if reason is not None and reason.ok is False:
            text = (
                f"LD_LIBRARY_PATH puts the compat libcuda of CUDA {cuda} first; on {one_line(machine)}: {reason.text}"
            )
            source = asked.catalogue.source(reason.source)
            remedies = ("take the compat folder out of LD_LIBRARY_PATH",)
            yield Finding(stage.line, "compat-libcuda", "error", text, remedies, source.title if source else None)
