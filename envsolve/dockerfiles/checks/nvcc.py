"""What nvcc is told to compile for, against the machines."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.compat.code import best_code
from envsolve.compat.driver import ptx_loads
from envsolve.compat.verdict import Level
from envsolve.compat.versions import minor
from envsolve.dockerfiles.asked import Asked
from envsolve.dockerfiles.installs import nvcc_code
from envsolve.dockerfiles.model import Command, Finding, Stage
from envsolve.machine.model import Gpu, Machine


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Judge the code of each nvcc command for each GPU."""
    image = asked.image(stage)
    cuda = image.cuda if image else None
    for command in stage.commands:
        code = nvcc_code(command)
        if code is None:
            continue
        for machine in asked.machines:
            for gpu in machine.gpus or ():
                yield from _judged(command, code, gpu, machine, cuda, asked)


def _judged(
    command: Command, code: tuple[str, ...], gpu: Gpu, machine: Machine, cuda: str | None, asked: Asked
) -> Iterator[Finding]:
    if gpu.cc is None:
        return
    toolkit = next((t for t in asked.catalogue.toolkits if cuda and minor(t.version) == minor(cuda)), None)
    if toolkit and not best_code(toolkit.archs, gpu.cc, asked.facts.architectures)[0].usable:
        text = f"nvcc {toolkit.version} makes no code that runs on {gpu.label}"
        yield Finding(command.line, "nvcc-arch", "error", text, (f"take a toolkit that knows {gpu.cc.sm}",))
        return
    level, runs = best_code(code, gpu.cc, asked.facts.architectures)
    name = runs.name if runs else ""
    remedy = f"-gencode arch=compute_{gpu.cc.sm[3:]},code={gpu.cc.sm}"
    if not code:
        text = f"nvcc is told no architecture, so that it compiles for its default and not for {gpu.label}"
        yield Finding(command.line, "nvcc-arch", "warning", text, (remedy,))
    elif not level.usable:
        text = f"{', '.join(code)} does not run on {gpu.label}"
        yield Finding(command.line, "nvcc-arch", "error", text, (remedy,))
    elif level is Level.PTX:
        loads = ptx_loads(cuda, machine.driver) if cuda else None
        if loads is not None and loads.ok is False:
            text = f"{', '.join(code)} has {name} alone for {gpu.label}, which its driver does not load: {loads.text}"
            yield Finding(command.line, "nvcc-arch", "error", text, (remedy,))
        else:
            text = f"{', '.join(code)} has no code for {gpu.label}: its driver compiles {name} at the first start"
            yield Finding(command.line, "nvcc-arch", "warning", text, (remedy,))
