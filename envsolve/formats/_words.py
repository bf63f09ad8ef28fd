"""Machines, drivers, support levels and warnings in the words of a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.planning.plan import DriverNeed, Plan, Support
from envsolve.solve.outcome import Fix

#: What torch is called on package indexes and on conda channels.
TORCH = ("torch", "pytorch")
_FLAVOUR = r"cu(\d+)(\d)"

#: What a level means for a GPU, best first.
LEVELS = {
    "native": "code made for the GPU",
    "family": "code of the GPU's own family",
    "ptx": "PTX, which the driver compiles at first use",
    "unknown": "a fact that decides is not known",
    "none": "no code for the GPU",
}


def driver_sentence(need: DriverNeed, flavour: str | None) -> str:
    """How the driver runs the plan's CUDA builds.

    Args:
        need: The driver that they need, and the machine's.
        flavour: Theirs, ``cu126``.
    """
    if need.required is None:
        return "the plan needs no NVIDIA driver"
    wanted = f"needs {need.required} or newer"
    if need.have is None and need.mode is None:
        return f"{wanted}; the machine's is not known"
    have, builds = need.have or "the machine's", _builds(flavour)
    if need.mode is None:
        return f"{wanted}; whether {have} is that new is not known"
    if need.mode == "forward-compat":
        return f"{have} runs {builds} through the cuda-compat libraries (forward compatibility); alone it {wanted}"
    how = "in full" if need.mode == "full" else "through minor-version compatibility (machine code, no PTX)"
    return f"{have} runs {builds} {how}; {wanted}"


def flavour_sentence(plan: Plan) -> str:
    """The plan's flavour and what decided for it: the least that its code can do on a GPU of the plan."""
    if plan.cuda == "cpu":
        return f"cpu: {_why_cpu(plan)}"
    torch = tuple(item for item in plan.support if item.package in TORCH)
    level = worst_level(torch or plan.support)
    if level is None:
        return f"{plan.cuda}: the GPU code in its builds is not known"
    return f"{plan.cuda}: {level}, {LEVELS[level]}"


def warning_lines(plan: Plan) -> Iterator[str]:
    """The plan's warnings, each with its code and, on a line of its own, what to do about it."""
    for caution in plan.warnings:
        yield f"Warning   {caution.message} [{caution.code}]"
        if caution.remedy:
            yield f"          {caution.remedy}"


def in_a_line(plan: Plan) -> str:
    """What the plan holds: ``chosen: cu126, torch 2.14.1+cu126, 29 packages``; or that nothing fits."""
    if plan.status == "impossible":
        return "; ".join(["nothing fits", *(f"because {fact.fact}" for fact in plan.conflict)])
    torch = next((f"{package.name} {package.version}" for package in plan.packages if package.name in TORCH), None)
    return f"chosen: {', '.join(filter(None, [plan.cuda, torch, count(len(plan.packages))]))}"


def in_words(remedy: Fix) -> str:
    """What to change and, where that is known, what it unlocks."""
    return f"{remedy.text}: {remedy.unlocks}" if remedy.unlocks else remedy.text


def count(number: int, noun: str = "package") -> str:
    """``1 package``, ``2 packages``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def worst_level(support: tuple[Support, ...]) -> str | None:
    """The least of the levels; None where nothing was judged."""
    return max((item.level for item in support), key=list(LEVELS).index, default=None)


def gpu_name(item: Support) -> str:
    """The GPU of a support entry with its compute capability."""
    cc = item.compute_capability
    return item.gpu if cc is None or cc in item.gpu else f"{item.gpu} (cc {cc})"


def _why_cpu(plan: Plan) -> str:
    """The planner never takes it by itself for a machine with a GPU; where it had to guess, the status says so."""
    if plan.machines and all(machine.gpus == () for machine in plan.machines):
        return "the machine has no NVIDIA GPU" if len(plan.machines) == 1 else "the machines have no NVIDIA GPU"
    return "as asked" if plan.status == "ok" else "whether the machine has an NVIDIA GPU is not known"


def _builds(flavour: str | None) -> str:
    """``CUDA 13.2 builds`` for ``cu132``."""
    match = re.fullmatch(_FLAVOUR, flavour or "")
    return f"CUDA {match[1]}.{match[2]} builds" if match else "its CUDA builds"
