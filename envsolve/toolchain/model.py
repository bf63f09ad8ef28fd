"""What compiling the CUDA sources of a plan requires."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

SITE_PACKAGES = "{site_packages}"
"""Stands in a variable's value for the environment's own folder of packages, which a plan cannot know."""


class Toolchain(msgspec.Struct, frozen=True):
    """What compiling the plan's CUDA sources takes, or would take in place of a wheel that is on no index.

    Attributes:
        nvcc: CUDA version of the nvcc to compile with, ``12.8``; None where that is not known.
        host_compiler: The host compiler to take, ``gcc 13``: the machine's own where it is within all limits.
        TORCH_CUDA_ARCH_LIST: The variable's value for the plan's GPUs, ``8.6;8.9``; None where they are not known.
        host_compilers: Every host compiler within the limits, ``gcc 9 to 13``.
        compiles: The packages that are compiled as they are installed.
        compiles_at_use: The packages that compile CUDA code where they run, and need the toolchain there.
        build_requires: What must be installed before they are built without isolation.
        nvcc_packages: By package manager (``pip``, ``conda``, ``apt``), the packages that make up this nvcc.
        nvcc_from: Whose nvcc it is: the ``machine``'s own toolkit's, or that of the plan's own packages (``pip``); None
            where none is in reach.
        CUDA_HOME: Where that toolkit is; may begin with :data:`SITE_PACKAGES`.
        gcc_min: The oldest gcc major within the limits, ``gcc_max`` the newest; None for no bound that is known.
        environment: Other variables that must be set while the sources are compiled.
        get_nvcc: The shortest way to a toolchain where none is in reach, as a command.
        checks: What was seen to hold: that the nvcc knows the cards, that no PTX is left to an older driver.
    """

    nvcc: str | None
    host_compiler: str | None
    TORCH_CUDA_ARCH_LIST: str | None
    host_compilers: str | None = None
    compiles: tuple[str, ...] = ()
    build_requires: tuple[str, ...] = ()
    nvcc_packages: Mapping[str, tuple[str, ...]] = {}
    compiles_at_use: tuple[str, ...] = ()
    nvcc_from: Literal["machine", "pip"] | None = None
    CUDA_HOME: str | None = None
    gcc_min: int | None = None
    gcc_max: int | None = None
    environment: Mapping[str, str] = {}
    get_nvcc: str | None = None
    checks: tuple[str, ...] = ()
