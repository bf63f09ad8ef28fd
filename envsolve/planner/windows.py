"""What is compiled on Windows: with a compiler that the catalogue has no facts of, and by nobody here."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from envsolve.machine.model import Machine
from envsolve.plan import Caution, Toolchain

# What is said of gcc, and of ways to an nvcc for Linux.
_OF_LINUX = ("compiles", "compiles-at-use", "host-compiler", "nvcc")


def is_windows(machines: Sequence[Machine]) -> bool:
    """Whether one of the machines is."""
    return any(machine.platform is not None and machine.platform.os == "windows" for machine in machines)


def on_windows(toolchain: Toolchain, cautions: Sequence[Caution]) -> tuple[Toolchain, tuple[Caution, ...]]:
    """A toolchain that was worked out as for Linux, less what does not hold on Windows, and what to know about it."""
    told = [caution for caution in cautions if caution.code not in _OF_LINUX]
    names = ", ".join(dict.fromkeys((*toolchain.compiles, *toolchain.compiles_at_use)))
    if names:
        nvcc = f"nvcc {toolchain.nvcc}" if toolchain.nvcc else "an nvcc"
        text = (
            f"{names} will be compiled from source, on Windows by {nvcc} and Microsoft's C++ compiler, of which it is"
        )
        text += " not known here what goes with it; envsolve install is for Linux"
        way = "take versions that have wheels for Windows, or WSL 2, which has the card, too: --platform linux-x86_64"
        told.insert(0, Caution("compiles", text, way))
    plain = replace(
        toolchain,
        host_compiler=None,
        host_compilers=None,
        gcc_min=None,
        gcc_max=None,
        get_nvcc=None,
        nvcc_packages={},
    )
    return plain, tuple(told)
