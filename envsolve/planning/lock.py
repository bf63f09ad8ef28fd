"""A lock's assumptions about the machine that it will be installed on.

A pylock.toml pins files; it cannot say that those files need driver 580 or were judged for an H100. That part is
kept in its ``[tool.envsolve]`` table, and is what lets ``install`` refuse a lock made for another machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Machine, Platform
from envsolve.planning.plan import Plan
from envsolve.rules.platform import libc_needed, libc_of, libc_serves, libc_text
from envsolve.toolchain.model import SITE_PACKAGES, Toolchain
from envsolve.values import ComputeCapability, CudaVersion, DriverVersion, PythonVersion

SCHEMA: Literal["envsolve.lock/1"] = "envsolve.lock/1"
CLASSES_SCHEMA: Literal["envsolve.lock-classes/1"] = "envsolve.lock-classes/1"
EXPLICIT_NOTE = "# envsolve: "
"""Begins the comment of an explicit lock of conda packages that holds its table, as JSON."""


@dataclass(frozen=True, slots=True)
class Building:
    """Requirements for compiling the CUDA sources of a lock.

    Attributes:
        packages: Those that are compiled as they are installed.
        nvcc: CUDA version of the nvcc that compiles them, ``13.0``; None if no plan could name one.
        nvcc_from: ``pip`` where packages of the lock are that nvcc, ``machine`` where it was the machine's own.
        cuda_home: Where it was.
        gcc_min: The oldest suitable gcc major, ``gcc_max`` the newest; None if no limit is known.
        environment: Variables to be set.
        conda: Match specs, with their channels, of conda packages that are that nvcc; empty if ``pip`` has it.
    """

    packages: tuple[str, ...] = ()
    nvcc: str | None = None
    nvcc_from: Literal["machine", "pip"] | None = None
    cuda_home: str | None = None
    gcc_min: int | None = None
    gcc_max: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    conda: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The machine that a lock was made for; ``None`` and empty mean "assumes nothing of the kind".

    Attributes:
        python: ``3.12``.
        os: ``linux`` or ``windows``.
        arch: ``x86_64`` or ``aarch64``.
        libc: Oldest libc that every wheel accepts, ``glibc 2.28``.
        driver_required: Oldest NVIDIA driver that runs the lock, ``525.60.13``.
        compat_libcuda: CUDA version of the cuda-compat ``libcuda`` that makes up for an older driver, ``13.0``.
        cuda: The variant, ``cu126`` or ``cpu``.
        gpus: Compute capabilities that the lock was judged for, ``("8.9", "9.0")``.
        environment: Variables that must be set where the environment runs.
        catalogue_date: ISO date of the newest fact of the catalogue that judged it.
        building: Requirements for compiling its sources.
    """

    schema: Literal["envsolve.lock/1"] = SCHEMA
    python: str | None = None
    os: str | None = None
    arch: str | None = None
    libc: str | None = None
    driver_required: str | None = None
    compat_libcuda: str | None = None
    cuda: str | None = None
    gpus: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    catalogue_date: str | None = None
    building: Building | None = None

    def to_table(self) -> dict[str, Any]:
        """The ``[tool.envsolve]`` table; what is not assumed is left out, for TOML has no null."""
        table: dict[str, Any] = msgspec.to_builtins(self)
        if self.building is not None:
            table["building"] = _stated(table["building"])
        return _stated(table)

    @classmethod
    def from_table(cls, table: Mapping[str, Any] | None) -> Assumptions | None:
        """Read a ``[tool.envsolve]`` table; None in, None out: a lock made by another tool assumes nothing.

        Raises:
            UsageError: The table is there and is not one that this version understands.
        """
        if table is None:
            return None
        try:
            read = msgspec.convert(table, cls)
        except msgspec.ValidationError as error:
            raise UsageError(
                f"the lock's [tool.envsolve] table cannot be read: {error}",
                hint="make the lock again with this version of envsolve",
            ) from error
        fault = next(_faults(read), None)
        if fault is not None:
            raise UsageError(
                f"the lock's [tool.envsolve] table cannot be read: {fault}",
                hint="make the lock again with envsolve plan",
            )
        return read


def _stated(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value not in (None, [], (), {})}


Classes = Mapping[str, Assumptions]
"""Classes of machines of one lock by name, each with the assumptions of its part."""


def classes_to_table(classes: Classes) -> dict[str, Any]:
    """The ``[tool.envsolve]`` table of a lock for several classes of machines."""
    return {"schema": CLASSES_SCHEMA, "classes": {name: one.to_table() for name, one in classes.items()}}


def classes_from_table(table: Mapping[str, Any] | None) -> Classes:
    """Read the classes out of a ``[tool.envsolve]`` table; empty if the lock is of one class.

    Raises:
        UsageError: They are not such that this version understands them.
    """
    # The lock may come from any tool, and [tool.envsolve] may be settings of a person rather than assumptions of ours.
    if not isinstance(table, Mapping) or table.get("schema") != CLASSES_SCHEMA:
        return {}
    tables = table.get("classes")
    if not isinstance(tables, Mapping) or not tables or not all(isinstance(one, Mapping) for one in tables.values()):
        raise UsageError(
            "the lock's [tool.envsolve] table cannot be read: it has no classes of machines",
            hint="make the lock again with envsolve plan",
        )
    return {name: one for name, table in tables.items() if (one := Assumptions.from_table(table))}


def _faults(lock: Assumptions) -> Iterator[str]:
    """Values of a table that have the right type but cannot be judged, or could do harm."""
    building = lock.building or Building()
    yield from _malformed(lock, building)
    yield from unsafe(lock, building)


def _malformed(lock: Assumptions, building: Building) -> Iterator[str]:
    """Values that cannot be read."""
    for name, value, pattern, kind in (
        ("python", lock.python, r"\d+\.\d+", "version such as 3.12"),
        ("driver_required", lock.driver_required, r"\d+(\.\d+)*", "driver version"),
        ("compat_libcuda", lock.compat_libcuda, r"\d+\.\d+", "CUDA version such as 13.0"),
        ("building.nvcc", building.nvcc, r"\d+\.\d+", "CUDA version such as 13.0"),
    ):
        # Checked by form because these values are compared and printed later, far from a message that could
        # name the lock.
        if value is not None and not re.fullmatch(pattern, value):
            yield f"{name} is no {kind}: {value!r}"
    if lock.libc is not None and libc_of(Platform(libc=lock.libc)) is None:
        yield f"libc is not in a form such as 'glibc 2.28': {lock.libc!r}"
    for gpu in lock.gpus:
        try:
            ComputeCapability.parse(gpu)
        except ValueError as error:
            yield f"gpus: {error}"


def unsafe(lock: Assumptions, building: Building) -> Iterator[str]:
    """Values that could do harm: whoever writes a lock must not choose what programs load or run."""
    if building.nvcc_from == "pip" and building.cuda_home is not None and not _is_inside(building.cuda_home):
        yield f"building.cuda_home is outside the environment: {building.cuda_home!r}"
    for name, value in (*lock.environment.items(), *building.environment.items()):
        # A line break would end the assignment in the shell scripts that set these variables and start a command.
        if set(value) & {"\0", "\n", "\r"}:
            yield f"environment gives {name} a value with a line break or a null in it"
    # LD_PRELOAD and PYTHONPATH are refused by name, a PATH by its place.
    homes = {building.cuda_home} if building.nvcc_from == "machine" else set()
    for name, value in lock.environment.items():
        # A plan only ever puts one directory before the existing PATH; a whole PATH of its own would choose
        # every program.
        home = value.removesuffix("/bin:$PATH") if name == "PATH" else value
        if not _RUN_VARIABLE.fullmatch(name) or (name == "PATH" and home == value):
            yield f"environment sets {name} to {value!r}, which no plan does"
        elif home not in homes and not _is_inside(home):
            yield f"environment sets {name} to a place outside the environment: {value!r}"
    if building.environment and (unknown := sorted(building.environment.keys() - _build_variables())):
        yield f"building.environment sets {', '.join(unknown)}, which no known project uses"


# A hyphen is what no shell can set, and what the second variable of Triton 3.3 has.
_RUN_VARIABLE = re.compile(r"TRITON_PTXAS(?:_BLACKWELL)?[_-]PATH|CUDA_HOME|PATH")


def _is_inside(place: str) -> bool:
    """Return whether a path of a lock is in the environment, which packages lie three directories deep in."""
    if not place.startswith(f"{SITE_PACKAGES}/"):
        return False
    depth = 3
    # Counted instead of resolved: the environment does not exist yet, and a lock made on another system has no
    # real paths.
    for part in place.split("/")[1:]:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


def _build_variables() -> set[str]:
    """The variables that builds of the known projects read."""
    projects = Catalogue().source_projects
    return {"TORCH_CUDA_ARCH_LIST"}.union(
        *(project.variables for project in projects), (p.arch_variable for p in projects if p.arch_variable)
    )


def assumptions_of(plan: Plan) -> Assumptions:
    """The assumptions of installing ``plan`` about a machine.

    Facts that differ between the plan's machines (a plan may serve several) are not assumed, and GPUs only if code
    of the plan was judged for them: a plan without such code runs beside any GPU.
    """
    # A machine without a platform was planned for an assumed one; assuming it here would refuse the machine itself.
    platforms = [machine.platform for machine in plan.machines if machine.platform is not None]
    judged = {item.compute_capability for item in plan.support if item.compute_capability}
    return Assumptions(
        python=plan.python,
        os=_common(platform.os for platform in platforms),
        arch=_common(platform.arch for platform in platforms),
        libc=oldest_libc(
            (package.filename for package in plan.packages if package.filename),
            (package.libc for package in plan.packages if package.libc),
        ),
        driver_required=plan.driver.required if plan.driver else None,
        compat_libcuda=_compat_of(plan),
        cuda=plan.cuda,
        gpus=tuple(sorted(judged, key=ComputeCapability.parse)),
        environment=dict(plan.environment),
        catalogue_date=plan.catalogue_date,
        building=_building_of(plan.toolchain) if plan.toolchain else None,
    )


def _building_of(toolchain: Toolchain) -> Building | None:
    """Packages compiled now, or at run time with an nvcc from packages, which lack some file names for that."""
    if not toolchain.compiles and not toolchain.compiles_at_use:
        return None
    return Building(
        toolchain.compiles,
        toolchain.nvcc,
        toolchain.nvcc_from,
        toolchain.CUDA_HOME,
        toolchain.gcc_min,
        toolchain.gcc_max,
        dict(toolchain.environment),
        toolchain.nvcc_packages.get("conda", ()) if toolchain.nvcc_from != "pip" else (),
    )


def _compat_of(plan: Plan) -> str | None:
    """The oldest of the compat libraries that a plan relies on."""
    if plan.driver is None or plan.driver.mode != "forward-compat":
        return None
    # The oldest, because every machine of the plan must be able to run the lock.
    found = [m.driver.compat_libcuda for m in plan.machines if m.driver is not None and m.driver.compat_libcuda]
    return min(found, key=CudaVersion.parse, default=None)


def oldest_libc(filenames: Iterable[str], stated: Iterable[str] = ()) -> str | None:
    """The oldest libc that runs every one of these wheels, ``glibc 2.28``; None if none of them requires one.

    Args:
        filenames: Those that are not wheels are passed over.
        stated: What is known about wheels whose file name says nothing of it, or too little.
    """
    wheels = (name.removesuffix(".whl") for name in filenames if name.endswith(".whl"))
    named = (libc_needed(stem.rpartition("-")[2]) for stem in wheels)
    known = (libc_of(Platform(libc=text)) for text in stated)
    needs = [need for need in (*named, *known) if need is not None]
    # The highest requirement is the oldest libc that runs all of them; glibc and musl wheels never meet in one plan.
    return libc_text(max(needs, key=lambda need: need[1])) if needs else None


def mismatches(assumptions: Assumptions, machine: Machine) -> tuple[str, ...]:
    """One plain sentence for each assumption that ``machine`` fails; empty if the lock fits.

    Unknown facts about the machine fail nothing: see :func:`unknowns`. A machine known to have no GPU fails nothing
    either, for images are built where no GPU is in sight.
    """
    return tuple(sentence for holds, sentence in _judge(assumptions, machine) if holds is False)


def unknowns(assumptions: Assumptions, machine: Machine) -> tuple[str, ...]:
    """One plain sentence for each assumption that cannot be judged, because the machine's side is not known."""
    return tuple(sentence for holds, sentence in _judge(assumptions, machine) if holds is None)


def _judge(lock: Assumptions, machine: Machine) -> Iterator[tuple[bool | None, str]]:
    """Every assumption, whether it holds (None: not known), and a sentence with the assumed and the actual value."""
    platform = machine.platform or Platform()
    if lock.python:
        found = {_minor(p.version) for p in machine.pythons or ()} | (
            {_minor(machine.python)} if machine.python else set()
        )
        yield (
            (lock.python in found if found else None),
            _versus(f"Python {lock.python}", "the Python", ", ".join(sorted(found))),
        )
    if lock.os:
        yield _equal(lock.os, platform.os), _versus(lock.os, "the operating system", platform.os)
    if lock.arch:
        yield _equal(lock.arch, platform.arch), _versus(f"architecture {lock.arch}", "the architecture", platform.arch)
    if lock.libc:
        yield _libc_holds(lock.libc, platform), _versus(f"{lock.libc} or newer", "the libc", platform.libc)
    if lock.driver_required:
        yield _driver_holds(lock, machine)
    if lock.gpus:
        yield from _judge_gpus(lock.gpus, machine)


def _driver_holds(lock: Assumptions, machine: Machine) -> tuple[bool | None, str]:
    """Whether the driver is new enough, or is raised by a compat library that the lock relies on."""
    driver, need = machine.driver or Driver(), f"driver {lock.driver_required} or newer"
    if lock.compat_libcuda:
        need += f", or a cuda-compat libcuda of CUDA {lock.compat_libcuda}"
        # Whether that library works with this GPU is for the rules at install time; here it only must be there.
        if driver.compat_libcuda and CudaVersion.parse(driver.compat_libcuda) >= CudaVersion.parse(lock.compat_libcuda):
            return True, need
    holds = DriverVersion.parse(driver.version).reaches(lock.driver_required or "") if driver.version else None
    return holds, _versus(need, "the driver", driver.version)


def _judge_gpus(judged: tuple[str, ...], machine: Machine) -> Iterator[tuple[bool | None, str]]:
    want = f"the lock was made for compute capability {', '.join(judged)}"
    if machine.gpus is None:
        yield None, f"{want}; it is not known which GPUs this machine has"
    for gpu in machine.gpus or ():
        # Exactly these: whether code for one GPU also runs on another is a question for the rules, and so for
        # a new plan.
        holds = gpu.compute_capability in judged if gpu.compute_capability else None
        yield holds, f"{want}; this machine has {gpu.label}"


def _libc_holds(want: str, platform: Platform) -> bool | None:
    need, have = libc_of(Platform(libc=want)), libc_of(platform)
    return libc_serves(have, need) if need and have else None


def _minor(version: str) -> str:
    return str(PythonVersion.parse(version))


def _equal(want: str, have: str | None) -> bool | None:
    return None if have is None else want == have


def _common(values: Iterable[str | None]) -> str | None:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _versus(need: str, subject: str, have: str | None) -> str:
    known = f"this machine has {have}" if have else f"{subject} of this machine is not known"
    return f"the lock requires {need}; {known}"
