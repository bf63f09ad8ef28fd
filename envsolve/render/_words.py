"""Machines, drivers and support levels in the words of a terminal."""

from __future__ import annotations

from collections import Counter

from envsolve.machine.model import Machine
from envsolve.plan import DriverNeed, Support

#: What a level means for a GPU, best first.
LEVELS = {
    "native": "code made for the GPU",
    "family": "code of the GPU's own family",
    "ptx": "PTX, which the driver compiles at first use",
    "unknown": "not known whether there is code for the GPU",
    "none": "no code for the GPU",
}


def describe(machine: Machine) -> str:
    """One line: ``2x NVIDIA H100 (cc 9.0), driver 580.95, linux x86_64, glibc 2.35, Python 3.12``."""
    platform = machine.platform
    parts = [
        _gpus(machine),
        f"driver {machine.driver.version}" if machine.driver and machine.driver.version else None,
        " ".join(filter(None, [platform.os, platform.arch])) if platform else None,
        platform.libc if platform else None,
        f"Python {machine.python}" if machine.python else None,
    ]
    return ", ".join(part for part in parts if part)


def driver_sentence(need: DriverNeed) -> str:
    """How the driver runs the plan."""
    if need.required is None:
        return "the plan needs no NVIDIA driver"
    if need.have is None:
        return f"{need.required} or newer is needed; the machine's is not known"
    how = {
        "full": "runs this CUDA in full",
        "minor-version": "is older than this CUDA: it runs machine code of it (minor-version compatibility), no PTX",
        "forward-compat": "runs this CUDA through the cuda-compat libraries (forward compatibility)",
        None: "is there",
    }[need.mode]
    return f"{need.have} {how}; {need.required} or newer is needed"


def worst_level(support: tuple[Support, ...]) -> str | None:
    """The least of the levels; None where nothing was judged."""
    return max((item.level for item in support), key=list(LEVELS).index, default=None)


def gpu_name(item: Support) -> str:
    """The GPU of a support entry with its compute capability."""
    cc = item.compute_capability
    return item.gpu if cc is None or cc in item.gpu else f"{item.gpu} (cc {cc})"


def _gpus(machine: Machine) -> str:
    if machine.gpus is None:
        return "GPUs unknown"
    counts = Counter(gpu.label for gpu in machine.gpus)
    return " + ".join(f"{count}x {name}" if count > 1 else name for name, count in counts.items()) or "no GPU"
