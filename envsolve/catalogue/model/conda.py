"""Builds of packages on conda channels."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from envsolve.catalogue.model.evidence import Citation, Dispute, Evidence


class CondaBuild(msgspec.Struct, frozen=True):
    """One build of a package on a conda channel, for several Pythons.

    Attributes:
        channel: ``conda-forge`` or ``pytorch``.
        subdir: ``linux-64``, ``linux-aarch64``, ``win-64``.
        build: Pattern of its build strings as a match spec takes it, ``cuda129_*``.
        number: Build number of the recipe. conda-forge adds 200 to it for CUDA and 100 for MKL.
        pythons: Python versions, ``3.12``; empty where they are not known.
        cuda: CUDA version that it is built with; None for a CPU build.
        code: SASS and PTX, written as for :class:`envsolve.catalogue.model.builds.Build`.
        libc: The libc that it asks for, ``glibc 2.17``.
        triton: The Triton version that it depends on.
        arm: Whether an aarch64 build is for servers (``sbsa``) or for Jetson (``tegra``).
        depends: Dependencies that decide where it installs: ``__cuda``, ``cuda-version >=12.9,<13``.
        constrains: Its run constraints.
        released: ISO date of the recipe's change.
    """

    package: str
    version: str
    channel: str
    subdir: str
    build: str
    number: int
    evidence: Evidence
    source: str
    pythons: tuple[str, ...] = ()
    cuda: str | None = None
    code: tuple[str, ...] | None = None
    libc: str | None = None
    triton: str | None = None
    arm: Literal["sbsa", "tegra"] | None = None
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    released: str | None = None
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()
