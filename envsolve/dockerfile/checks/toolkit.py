"""The toolkit of the image against the CUDA of the torch that extensions are compiled against (rule 10)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.packages import Asked, Compiled, compiled
from envsolve.values import CudaVersion


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """``torch.utils.cpp_extension`` refuses an nvcc of another CUDA major than torch's."""
    image = asked.image(stage)
    if image is None or not image.cuda:
        return
    torch: str | None = None
    within, mine = asked.within(stage), set(map(id, stage.commands))
    for install in asked.installs(stage.history()):
        taken = asked.taken(install, "torch", within)
        number = taken.build.variant.removeprefix("cu") if taken else ""
        if number.isdigit():
            torch = f"{number[:-1]}.{number[-1]}"
        elif any(wanted.name == "torch" for wanted in install.wanted):
            torch = None
        for one in compiled(install, asked):
            if (
                torch
                and id(install.command) in mine
                and CudaVersion.parse(torch).major != CudaVersion.parse(image.cuda).major
            ):
                yield _mismatch(one, install.command.line, torch, image.cuda, stage)
                break


def _mismatch(one: Compiled, line: int, torch: str, nvcc: str, stage: Stage) -> Finding:
    text = f"{one.name} is compiled by nvcc {nvcc}, that of {stage.root.image}, against a torch of CUDA {torch}, "
    text += "which torch refuses" if one.sure else "which torch refuses if it has CUDA code"
    remedy = f"take a -devel image of CUDA {torch}, or a torch of CUDA {CudaVersion.parse(nvcc).major}"
    return Finding(line, "toolkit-mismatch", "error" if one.sure else "warning", text, (remedy,))
