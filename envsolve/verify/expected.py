"""What a plan or a lock expects of an environment, in the terms that checks see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from envsolve.catalogue.load import Catalogue
from envsolve.compat.code import best_code
from envsolve.compat.triton import chosen_ptxas
from envsolve.compat.verdict import Level
from envsolve.errors import UsageError
from envsolve.files import read_regular
from envsolve.install.classes import for_machine
from envsolve.install.files import read_lock
from envsolve.lock import Assumptions
from envsolve.machine.cc import ComputeCapability
from envsolve.machine.model import Machine
from envsolve.plan import DriverNeed, Support, Toolchain

_HINT = "envsolve plan ... --format json -o FILE makes one, and --format pylock a lock"
_KINDS: Mapping[str, Literal["sass", "ptx"]] = {"native": "sass", "family": "sass", "ptx": "ptx"}


@dataclass(frozen=True, slots=True)
class Code:
    """Torch's code for one card: ``kind`` is what runs, ``name`` is such as ``sm_90``."""

    kind: Literal["sass", "ptx"]
    name: str | None


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected; empty and None mean that nothing of the kind is.

    Attributes:
        source: The file that says so.
        cuda: The flavour, ``cu126``.
        code: Torch's code by compute capability.
        driver: What is needed of the driver, and how it is met.
        ptxas: CUDA of the ptxas that Triton brings and runs for a compute capability, by that.
        environment: Variables that are to be set.
        nvcc: CUDA of the nvcc that compiles what is compiled.
        versions: Acceptable versions by project name.
        optional: Projects of these that a marker may leave out.
    """

    source: str = ""
    cuda: str | None = None
    code: Mapping[str, Code] = field(default_factory=dict)
    driver: DriverNeed | None = None
    ptxas: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    nvcc: str | None = None
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()


def read_expected(path: Path, machine: Machine, catalogue: Catalogue) -> Expected:
    """Read what the JSON of a plan, or a ``pylock.toml`` with its ``[tool.envsolve]`` table, expects.

    A lock does not say which code a card runs: that is what the catalogue has measured in the build that it pins.

    Args:
        path: The file; a lock where its name ends in ``.toml``.
        machine: This one, for a lock that serves several classes of machines.
        catalogue: What Tritons bring, and what a lock's torch carries.

    Raises:
        UsageError: There is no such file, or it is neither, or it is an impossible plan.
        ImpossibleError: The lock has no part for this machine.
    """
    return _from_lock(path, machine, catalogue) if path.suffix == ".toml" else _from_plan(path, catalogue)


@dataclass(frozen=True, slots=True)
class _Package:
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """The part of a plan's JSON that a run can be held against; fields as :class:`envsolve.plan.Plan` has them."""

    schema: Literal["envsolve.plan/1"]  # has no default: an object without one is no plan that expects nothing
    status: Literal["ok", "impossible", "unknown"] = "ok"
    cuda: str | None = None
    packages: tuple[_Package, ...] = ()
    support: tuple[Support, ...] = ()
    driver: DriverNeed | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    toolchain: Toolchain | None = None


def _from_plan(path: Path, catalogue: Catalogue) -> Expected:
    try:
        plan = msgspec.json.decode(read_regular(path), type=_Plan)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint=_HINT) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no plan: {error}", hint=_HINT) from error
    if plan.status == "impossible":
        raise UsageError(f"the plan {path} is impossible: it expects nothing", hint=_HINT)
    versions = {package.name: (package.version,) for package in plan.packages}
    torch = [item for item in plan.support if item.package == "torch" and item.compute_capability]
    cards = sorted({item.compute_capability for item in plan.support if item.compute_capability})
    return Expected(
        source=str(path),
        cuda=plan.cuda,
        code={s.compute_capability or "": Code(_KINDS[s.level], s.code) for s in torch if s.level in _KINDS},
        driver=plan.driver,
        ptxas=_own_ptxas(versions, cards, catalogue),
        environment=plan.environment,
        nvcc=plan.toolchain.nvcc if plan.toolchain else None,
        versions=versions,
    )


def _from_lock(path: Path, machine: Machine, catalogue: Catalogue) -> Expected:
    lock = for_machine(read_lock(path), machine, machine.python, ())
    assumed = lock.assumptions
    if assumed is None:
        raise UsageError(f"the lock {path} has no [tool.envsolve] table, so it expects nothing", hint=_HINT)
    versions: dict[str, tuple[str, ...]] = {}
    for package in lock.pylock.packages:
        if package.version is not None:
            versions[package.name] = (*versions.get(package.name, ()), str(package.version))
    need = assumed.driver_required
    mode: Literal["forward-compat"] | None = "forward-compat" if assumed.compat_libcuda else None
    return Expected(
        source=str(path),
        cuda=assumed.cuda,
        code=_measured_code(assumed, versions.get("torch", ()), machine, catalogue),
        driver=DriverNeed(need, mode, None) if need else None,
        ptxas=_own_ptxas(versions, assumed.gpus, catalogue),
        environment=assumed.environment,
        versions=versions,
        optional=frozenset(package.name for package in lock.pylock.packages if package.marker is not None),
    )


def _own_ptxas(
    versions: Mapping[str, tuple[str, ...]], cards: Sequence[str], catalogue: Catalogue
) -> Mapping[str, str]:
    """CUDA of the assembler that the one Triton among packages runs for each card, where the catalogue knows it."""
    wanted = versions.get("triton", ())
    release = next((r for r in catalogue.tritons if (r.version,) == wanted), None)
    if release is None:
        return {}
    chosen = {card: chosen_ptxas(release, ComputeCapability.parse(card)) for card in cards}
    return {card: ptxas.cuda for card, ptxas in chosen.items() if ptxas}


def _measured_code(
    assumed: Assumptions, torch: Sequence[str], machine: Machine, catalogue: Catalogue
) -> Mapping[str, Code]:
    """The code that the pinned torch carries for each card of a lock; nothing where its builds do not agree on it."""
    arch = assumed.arch or (machine.platform.arch if machine.platform else None) or ""
    codes = {
        build.code
        for build in catalogue.builds("torch")
        if build.code and build.variant == assumed.cuda and arch in build.platform
        if (f"{build.version}{build.local}",) == tuple(torch)
    }
    if len(codes) != 1 or not arch:
        return {}
    (code,) = codes
    best = {card: best_code(code, ComputeCapability.parse(card), catalogue.architectures) for card in assumed.gpus}
    return {
        card: Code(_KINDS[level.value], found.name if found else None)
        for card, (level, found) in best.items()
        if level in (Level.NATIVE, Level.FAMILY, Level.PTX)
    }
