"""The GPUs that CUDA extensions are compiled for: no GPU is there to ask as an image is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from envsolve.dockerfile.installs import Install
from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.offers import Name
from envsolve.dockerfile.packages import ARCH_LIST, Asked, Compiled, compiled, torch_code
from envsolve.facts.hardware import toolkit_of
from envsolve.machine.model import Gpu
from envsolve.rules.nvidia.code import best_code
from envsolve.values import ComputeCapability, DriverVersion


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Look at the variables that name them, where something is compiled that reads them."""
    cards = {gpu.cc: gpu for machine in asked.machines for gpu in machine.gpus or () if gpu.cc is not None}
    if not cards:
        return
    for install in asked.installs(stage.commands):
        for one in compiled(install, asked):
            if one.sure or _has_nvcc(stage, asked):
                yield from _judged(one, install, dict(sorted(cards.items())), stage, asked)


def _judged(
    one: Compiled, install: Install, cards: Mapping[ComputeCapability, Gpu], stage: Stage, asked: Asked
) -> Iterator[Finding]:
    variables, line = install.command.variables, install.command.line
    known = asked.image(stage) is not None or asked.distribution(stage) is not None
    # An image that nobody knows may have set the variables.
    surely: Literal["error", "warning"] = "error" if one.sure and known else "warning"
    for name, value in one.told:
        if variables.get(name, "0") in ("", "0"):
            text = f"{one.name} is compiled without its CUDA code, since it sees no GPU as an image is built"
            yield Finding(line, "cuda-not-forced", surely, text, (f"ENV {name}={value}",))
    if one.variable is None:
        return
    given = variables.get(one.variable)
    code = torch_code(given or "") if one.variable == ARCH_LIST else None
    missing = [cc for cc in cards if code and not best_code(code, cc, asked.facts.architectures)[0].usable]
    listed = (given or "").replace(" ", ";").split(";") if missing else []
    wanted = sorted({*filter(None, listed), *(str(cc) for cc in (missing or cards))}, key=DriverVersion.parse)
    remedies = (f'ENV {ARCH_LIST}="{";".join(wanted)}"',)
    if one.variable != ARCH_LIST:
        remedies = (f"set {one.variable}, as the documentation of {one.name} says",)
    if not given and not one.defaults:
        text = f"{one.name} is compiled and {one.variable} is not set: no GPU is there to ask as an image is built"
        if not one.sure:
            text = f"if {one.name} has CUDA code, it is compiled for no GPU that is meant: {one.variable} is not set"
        yield Finding(line, "arch-list-unset", surely, text, remedies)
    for cc in missing:
        text = f"{one.variable}={given} makes no code that runs on {cards[cc].label}"
        yield Finding(line, "arch-list", "error" if one.sure else "warning", text, remedies)
    yield from _unknown_to_nvcc(one, line, cards, stage, asked)


def _unknown_to_nvcc(
    one: Compiled, line: int, cards: Mapping[ComputeCapability, Gpu], stage: Stage, asked: Asked
) -> Iterator[Finding]:
    """The toolkit of the image may know no code for a card, whatever is listed."""
    image = asked.image(stage)
    cuda = image.cuda if image else ""
    toolkit = toolkit_of(cuda, asked.catalogue.toolkits)
    for cc, gpu in cards.items():
        if one.sure and toolkit and not best_code(toolkit.archs, cc, asked.facts.architectures)[0].usable:
            text = f"{one.name} is compiled by nvcc {toolkit.version}, which makes no code that runs on {gpu.label}"
            yield Finding(line, "arch-list", "error", text, (f"take an image whose toolkit knows {cc.sm}",))


def _has_nvcc(stage: Stage, asked: Asked) -> bool:
    return asked.image(stage) is not None and "devel" in Name.of(stage.root.image).tag.split("-")
