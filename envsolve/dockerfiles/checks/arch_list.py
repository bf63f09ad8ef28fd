"""The GPUs that CUDA extensions are compiled for: no GPU is there to ask as an image is built."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.compat.code import best_code
from envsolve.dockerfiles.asked import Asked
from envsolve.dockerfiles.compiled import ARCH_LIST, compiled
from envsolve.dockerfiles.installs import installs
from envsolve.dockerfiles.model import Finding, Stage


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Look at the variable that names them, where something is compiled that reads it."""
    cards = {gpu.cc: gpu for machine in asked.machines for gpu in machine.gpus or () if gpu.cc is not None}
    listed = ";".join(str(cc) for cc in sorted(cards))
    for install in installs(stage.commands):
        for name, variable in compiled(install, asked.catalogue.source_projects):
            given, line = install.command.variables.get(variable), install.command.line
            remedies = (f'ENV {variable}="{listed}"',) if listed and variable == ARCH_LIST else ()
            if not given:
                text = f"{name} is compiled and {variable} is not set: no GPU is there to ask as an image is built"
                remedies = remedies or (f"set {variable}, as the documentation of {name} says",)
                yield Finding(line, "arch-list-unset", "error", text, remedies)
            code = _code(given or "") if variable == ARCH_LIST else []
            for cc, gpu in sorted(cards.items()):
                if code and not best_code(code, cc, asked.facts.architectures)[0].usable:
                    text = f"{variable}={given} makes no code that runs on {gpu.label}"
                    yield Finding(line, "arch-list", "error", text, remedies)


def _code(value: str) -> list[str]:
    """The code that a value makes. Source: torch/utils/cpp_extension.py, ``8.6+PTX``."""
    code = []
    for major, minor, letter, ptx in re.findall(r"(\d+)\.(\d)([af]?)(\+PTX)?", value):
        code += [f"sm_{major}{minor}{letter}", *([f"compute_{major}{minor}"] if ptx else [])]
    return code
