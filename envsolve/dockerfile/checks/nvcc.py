"""What nvcc, or cmake for it, is told to compile for, against the machines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.dockerfile.model import Command, Finding, Stage
from envsolve.dockerfile.packages import EVERY, NATIVE, Asked, cmake_code, nvcc_code
from envsolve.facts.hardware import Toolkit, toolkit_of
from envsolve.machine.model import Gpu, Machine
from envsolve.rules.nvidia.code import best_code
from envsolve.rules.nvidia.driver import ptx_loads
from envsolve.rules.verdict import Level
from envsolve.values import ComputeCapability


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Judge the code of each command for each GPU."""
    image = asked.image(stage)
    cuda = image.cuda if image else ""
    toolkit = toolkit_of(cuda, asked.catalogue.toolkits)
    for command in stage.commands:
        code = nvcc_code(command)
        code = cmake_code(command) if code is None else code
        if code is None:
            continue
        cards = {gpu.cc for machine in asked.machines for gpu in machine.gpus or ()}
        for machine in asked.machines:
            for gpu in machine.gpus or ():
                if gpu.cc is not None:
                    remedy = _remedy(command, gpu.cc, alone=len(cards) == 1)
                    yield from _judged(command.line, code, gpu, gpu.cc, machine, toolkit, remedy, asked)


def _judged(
    line: int,
    code: tuple[str, ...],
    gpu: Gpu,
    cc: ComputeCapability,
    machine: Machine,
    toolkit: Toolkit | None,
    remedy: str,
    asked: Asked,
) -> Iterator[Finding]:
    def found(level: str, text: str, remedy: str = remedy) -> Finding:
        return Finding(line, "nvcc-arch", "error" if level == "error" else "warning", text, (remedy,))

    if toolkit and not best_code(toolkit.archs, cc, asked.facts.architectures)[0].usable:
        text = f"nvcc {toolkit.version} makes no code that runs on {gpu.label}"
        yield found("error", text, f"take an image whose toolkit knows {cc.sm}")
        return
    if EVERY in code:
        return
    if NATIVE in code:
        yield found("error", "native is the GPU of the host that builds, and none is there as an image is built")
        return
    said = ", ".join(code)
    level, runs = best_code(code, cc, asked.facts.architectures)
    name = runs.name if runs else ""
    loads = ptx_loads(toolkit.version, machine.driver) if toolkit else None
    if not code:
        yield found("warning", f"nvcc is told no architecture: it compiles for its default and not for {gpu.label}")
    elif not level.usable:
        yield found("error", f"nvcc makes {said}, and no code that runs on {gpu.label}, which takes {cc.sm}")
    elif level is Level.PTX and loads is not None and loads.ok is False:
        yield found(
            "error",
            f"of {said}, {name} alone is for {gpu.label}, and its driver does not load it: {loads.text}",
        )
    elif level is Level.PTX:
        yield found(
            "warning",
            f"nvcc makes {said} and no {cc.sm}, which {gpu.label} takes: its driver compiles {name} at the first start",
        )


def _remedy(command: Command, cc: ComputeCapability, alone: bool) -> str:
    """What to write; the short form in place of the short form, which cannot stand beside others, for one card."""
    number = cc.sm[3:]
    if command.words[0].endswith("cmake"):
        return f"-DCMAKE_CUDA_ARCHITECTURES={number}"
    options = {re.split("[= ]", word, maxsplit=1)[0] for word in command.words}
    if alone and options & {"-arch", "--gpu-architecture"} and not options & {"-code", "--gpu-code"}:
        return f"-arch={cc.sm}"
    return f"-gencode arch=compute_{number},code={cc.sm}"
