"""The Plan: the one value that rendering, installing and verifying consume.

The structs mirror the ``envsolve.plan/1`` JSON field by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from envsolve.machine.model import Machine
from envsolve.resolve.outcome import ConflictFact, Remedy
from envsolve.trees.model import Tree

SCHEMA: Literal["envsolve.plan/1"] = "envsolve.plan/1"
SITE_PACKAGES = "{site_packages}"
"""Stands in a variable's value for the environment's own folder of packages, which a plan cannot know."""

__all__ = [
    "SITE_PACKAGES",
    "Caution",
    "CondaPin",
    "CondaTerms",
    "ConflictFact",
    "DriverNeed",
    "Plan",
    "PlannedPackage",
    "Remedy",
    "Support",
    "Toolchain",
]


class PlannedPackage(msgspec.Struct, frozen=True):
    """One package of the plan, pinned to one file.

    Attributes:
        version: Full version, with the local part where the file has one (``2.14.1+cu126``).
        variant: CUDA flavour of the code inside, None for packages without one.
        index: Address of the index that serves it; None for a direct reference.
        filename: Wheel or sdist file name.
        url: Where the file is; None where only the catalogue knows of it and no index was reached.
        hashes: Algorithm to hex digest; empty where unknown.
        kind: ``wheel`` or ``sdist``, or ``conda`` in a plan of conda packages.
        size: Bytes, where known.
        requires: Names of the packages of this plan that it depends on.
        why: What asked for it, in the words of the requirement.
        requires_python: Its Requires-Python.
        evidence: How it is known that there is such a build; None for packages that the catalogue does not describe.
        libc: Oldest libc that runs its binaries, ``glibc 2.32``, where that is known beside what its file name says.
        tree: The source tree that it is built from, where no file was asked for.
    """

    name: str
    version: str
    variant: str | None
    index: str | None
    filename: str | None
    url: str | None
    hashes: Mapping[str, str]
    kind: Literal["wheel", "sdist", "conda"]
    requires: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    size: int | None = None
    requires_python: str | None = None
    evidence: str | None = None
    libc: str | None = None
    tree: Tree | None = None


class Support(msgspec.Struct, frozen=True):
    """What one package's code can do on one GPU of the plan's machines."""

    package: str
    gpu: str
    compute_capability: str | None
    level: Literal["native", "family", "ptx", "none", "unknown"]
    code: str | None
    evidence: str | None


class DriverNeed(msgspec.Struct, frozen=True):
    """The driver that the plan needs and how it is met.

    Attributes:
        required: Oldest driver version that runs the plan.
        mode: ``full`` (the driver knows this CUDA), ``minor-version`` (same family, older), ``forward-compat``; None
            where the driver is unknown or not needed.
        have: The machine's driver version.
    """

    required: str | None
    mode: Literal["full", "minor-version", "forward-compat"] | None
    have: str | None


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


class CondaPin(msgspec.Struct, frozen=True):
    """A package that a plan holds fast: its version and, of a CUDA or CPU variant, the pattern of its build strings."""

    name: str
    version: str
    build: str | None = None


class CondaTerms(msgspec.Struct, frozen=True):
    """What a plan of conda packages was solved from, and what gives it again.

    Attributes:
        channels: Names or addresses, the preferred first.
        subdir: ``linux-64``.
        virtual: The virtual packages of the machines: ``{"__cuda": "12.4", "__archspec": "1=x86_64"}``.
        pins: What gives the plan again, also when newer packages are there, and never a CPU variant of what has a CUDA
            variant in it.
        pip: Exact requirements that pip installs on top, those of what conda installed among them, so that pip keeps
            it; empty where there is nothing for pip.
    """

    channels: tuple[str, ...]
    subdir: str
    virtual: Mapping[str, str]
    pins: tuple[CondaPin, ...]
    pip: tuple[str, ...] = ()


class Caution(msgspec.Struct, frozen=True):
    """Something the user should know: stable code, message, and what to do about it."""

    code: str
    message: str
    remedy: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """The resolved answer, or the reason why there is none.

    Attributes:
        status: ``ok``, ``impossible``, or ``unknown`` (resolved, but something that decides could not be known).
        python: The environment's Python, ``3.12``.
        cuda: The flavour, ``cu126`` or ``cpu``; None where no package of the plan has one.
        requirements: The requirements as asked.
        packages: Sorted by name.
        environment: Variables that must be set where the environment runs; a value may begin with
            :data:`SITE_PACKAGES`.
        catalogue_date: ISO date of the newest fact of the catalogue.
        own_catalogue_date: Likewise of the user's own catalogue folder; None where nothing of it was used.
        conda: Only in a plan of conda packages.
    """

    schema: Literal["envsolve.plan/1"] = SCHEMA
    status: Literal["ok", "impossible", "unknown"] = "ok"
    machines: tuple[Machine, ...] = ()
    python: str | None = None
    cuda: str | None = None
    requirements: tuple[str, ...] = ()
    packages: tuple[PlannedPackage, ...] = ()
    support: tuple[Support, ...] = ()
    driver: DriverNeed | None = None
    environment: Mapping[str, str] = {}
    toolchain: Toolchain | None = None
    warnings: tuple[Caution, ...] = ()
    conflict: tuple[ConflictFact, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    catalogue_date: str | None = None
    own_catalogue_date: str | None = None
    conda: CondaTerms | None = None
