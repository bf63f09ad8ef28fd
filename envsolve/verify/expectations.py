"""The expectations of a plan, a lock or an earlier report, compared with the checks' results; a surprise fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Literal

import msgspec
from packaging.version import InvalidVersion, Version

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.install.files import read_lock
from envsolve.install.lock_classes import for_machine
from envsolve.machine.model import Machine
from envsolve.planning.lock import Assumptions
from envsolve.planning.plan import DriverNeed, Support
from envsolve.rules.nvidia.code import best_code, chosen_ptxas
from envsolve.rules.verdict import Level
from envsolve.system.files import read_regular
from envsolve.toolchain.model import SITE_PACKAGES, Toolchain
from envsolve.values import ComputeCapability, CudaVersion, DriverVersion
from envsolve.verify.report import PLAN, Check, Report, Status, compared, read_report, with_machine

_HINT = "envsolve plan ... --format json -o FILE makes one, and --format pylock a lock"
_KINDS: Mapping[str, Literal["sass", "ptx"]] = {"native": "sass", "family": "sass", "ptx": "ptx"}


@dataclass(frozen=True, slots=True)
class Code:
    """Torch's code for one GPU: ``kind`` is what runs, ``name`` is such as ``sm_90``."""

    kind: Literal["sass", "ptx"]
    name: str | None


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected facts; empty and None mean that nothing of the kind is expected.

    Attributes:
        source: The file that says so.
        cuda: The variant, ``cu126``.
        code: Torch's code by compute capability.
        driver: The requirement on the driver, and how it is met.
        ptxas: CUDA version of the ptxas in Triton's wheel, by compute capability.
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

    A lock does not say which code a GPU runs: that is what the catalogue has measured in the build that it pins.

    Args:
        path: The file; a lock where its name ends in ``.toml``.
        machine: This one, for a lock of several classes of machines.
        catalogue: The ptxas of each Triton, and the GPU code of a lock's torch.

    Raises:
        UsageError: The file does not exist, or is neither, or is an impossible plan.
        ImpossibleError: The lock has no part for this machine.
    """
    return _from_lock(path, machine, catalogue) if path.suffix == ".toml" else _from_plan(path, catalogue)


@dataclass(frozen=True, slots=True)
class _Package:
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """The part of a plan's JSON that a run is compared with; fields as in :class:`envsolve.planning.plan.Plan`."""

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
        raise UsageError(f"{path} is not a plan: {error}", hint=_HINT) from error
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
    """CUDA of the assembler that the one Triton among packages runs for each GPU, if the catalogue knows it."""
    wanted = versions.get("triton", ())
    release = next((r for r in catalogue.tritons if (r.version,) == wanted), None)
    if release is None:
        return {}
    chosen = {card: chosen_ptxas(release, ComputeCapability.parse(card)) for card in cards}
    return {card: ptxas.cuda for card, ptxas in chosen.items() if ptxas}


def _measured_code(
    assumed: Assumptions, torch: Sequence[str], machine: Machine, catalogue: Catalogue
) -> Mapping[str, Code]:
    """The code that the pinned torch carries for each GPU of a lock; nothing if its builds do not agree on it."""
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


_CAPABILITY = re.compile(r"(?:.*\(cc )?(\d+\.\d+)\)?")
_VARIANT = re.compile(r"cu(\d+)(\d)")
_CODES = {"sass": "machine code", "ptx": "PTX that the driver compiles"}
#: For the ptxas of Triton; inductor prefers one that some torch builds bring.
_BY_TRITON = ("triton-kernel", "triton-dot", "triton-compile")
_OVERRIDES = ("TRITON_PTXAS_BLACKWELL_PATH", "TRITON_PTXAS_PATH")


@dataclass(frozen=True, slots=True)
class Wanted:
    """An expectation in words, and whether what was seen meets it."""

    words: str
    met: bool


def held_against(report: Report, expected: Expected) -> Report:
    """Compare what checks saw, and what is installed, with the expectations.

    A check that passed with another result than expected fails. Results that nobody expects do not change.
    """
    checks = tuple(_held(check, expected) for check in report.checks)
    packages = _packages(report.versions, expected)
    return replace(report, checks=(*packages, *checks), plan=expected.source)


def _held(check: Check, expected: Expected) -> Check:
    wanted = {
        name: found for name, (_, rule) in _RULES.items() if name in check.seen and (found := rule(check, expected))
    }
    if not wanted or check.status == "skip":
        return check
    held = replace(check, expected={name: found.words for name, found in wanted.items()})
    if check.status == "fail":
        return held
    surprises = [
        f"{_RULES[name][0]} is {check.seen[name]}, but the plan expects {found.words}"
        for name, found in wanted.items()
        if not found.met
    ]
    if surprises:
        return replace(held, status="fail", detail="\n".join([*surprises, check.detail]))
    words = ", ".join(found.words for found in wanted.values())
    return replace(held, detail=f"{check.detail}; as the plan expects: {words}")


def _code(check: Check, expected: Expected) -> Wanted | None:
    """Torch's code runs as machine code, or as PTX."""
    code = expected.code.get(_capability(check))
    if code is None:
        return None
    name = f" ({code.name})" if code.name else ""
    return Wanted(f"{_CODES[code.kind]}{name}", check.seen["code"] == code.kind)


def _cuda(check: Check, expected: Expected) -> Wanted | None:
    """The driver must support the CUDA of the plan in full, if the plan requires that."""
    match = _VARIANT.fullmatch(expected.cuda or "")
    if not match or expected.driver is None or expected.driver.mode != "full":
        return None
    cuda = f"{match[1]}.{match[2]}"
    return Wanted(
        f"one that knows CUDA {cuda} in full", CudaVersion.parse(check.seen["cuda"]) >= CudaVersion.parse(cuda)
    )


def _kernel_driver(check: Check, expected: Expected) -> Wanted | None:
    """The kernel's driver is new enough, unless a compat library makes up for it."""
    need = expected.driver
    if need is None or not need.required or need.mode == "forward-compat":
        return None
    return Wanted(
        f"{need.required} or newer",
        DriverVersion.parse(check.seen["kernel_driver"]).reaches(need.required) is not False,
    )


def _mode(check: Check, expected: Expected) -> Wanted | None:
    """The driver's own libcuda is in use, or that of cuda-compat, as planned; a newer driver needs none."""
    need = expected.driver
    if need is None or need.mode is None:
        return None
    if need.mode != "forward-compat":
        return Wanted("native: the driver's own libcuda", check.seen["mode"] == "native")
    newer = bool(need.required and DriverVersion.parse(check.seen.get("kernel_driver") or "0").reaches(need.required))
    return Wanted("compat: the libcuda of cuda-compat", newer or check.seen["mode"] == "compat")


def _ptxas(check: Check, expected: Expected) -> Wanted | None:
    """Triton runs the ptxas that the plan sets, or the one in its wheel."""
    if check.name not in _BY_TRITON:
        return None
    named = {name: expected.environment[name] for name in _OVERRIDES if name in expected.environment}
    if named:
        met = any(_same_path(check.seen["ptxas"], path) for path in named.values())
        return Wanted(" or ".join(f"{name}={path}" for name, path in named.items()), met)
    if _capability(check) not in expected.ptxas:
        return None
    return Wanted("the one in Triton's wheel", "triton" in PurePath(check.seen["ptxas"]).parts)


def _ptxas_cuda(check: Check, expected: Expected) -> Wanted | None:
    """It is of the CUDA that the catalogue has for the Triton of the plan."""
    cuda = expected.ptxas.get(_capability(check))
    if check.name not in _BY_TRITON or cuda is None or any(name in expected.environment for name in _OVERRIDES):
        return None
    return Wanted(f"CUDA {cuda}", CudaVersion.parse(check.seen["ptxas_cuda"]) == CudaVersion.parse(cuda))


def _nvcc_cuda(check: Check, expected: Expected) -> Wanted | None:
    """The planned nvcc compiles."""
    if expected.nvcc is None:
        return None
    return Wanted(
        f"CUDA {expected.nvcc}", CudaVersion.parse(check.seen["nvcc_cuda"]) == CudaVersion.parse(expected.nvcc)
    )


def _cuda_home(check: Check, expected: Expected) -> Wanted | None:
    """The toolkit is where the plan's CUDA_HOME leads."""
    home = expected.environment.get("CUDA_HOME")
    return Wanted(home, _same_path(check.seen["cuda_home"], home)) if home else None


#: What is compared, by the name of what a check saw: how it is called, and what is expected of it.
_RULES: Mapping[str, tuple[str, Callable[[Check, Expected], Wanted | None]]] = {
    "code": ("torch's code", _code),
    "cuda": ("CUDA of the driver", _cuda),
    "kernel_driver": ("the driver", _kernel_driver),
    "mode": ("the driver's mode", _mode),
    "ptxas": ("the ptxas that ran", _ptxas),
    "ptxas_cuda": ("its CUDA", _ptxas_cuda),
    "nvcc_cuda": ("CUDA of nvcc", _nvcc_cuda),
    "cuda_home": ("CUDA_HOME", _cuda_home),
}


def _same_path(seen: str, wanted: str) -> bool:
    """Whether a path is the planned one; some begin with the directory of packages, which is not known here."""
    if wanted.startswith(SITE_PACKAGES):
        inside = PurePath(wanted.removeprefix(SITE_PACKAGES).lstrip("/")).parts
        return PurePath(seen).parts[-len(inside) :] == inside
    return PurePath(seen) == PurePath(wanted)


def _capability(check: Check) -> str:
    """The compute capability of the check's GPU; empty if it has none."""
    match = _CAPABILITY.fullmatch(check.gpu or "")
    return match[1] if match else ""


def _packages(versions: Mapping[str, str], expected: Expected) -> tuple[Check, ...]:
    """One check: whether what is installed is what was planned; none if the plan or the report names nothing."""
    if not expected.versions or not versions:
        return ()
    differing = list(_differing(versions, expected))
    status: Status = "fail" if differing else "pass"
    right = f"all {len(expected.versions)} planned packages are there, in the planned versions"
    return (Check(PLAN, None, status, 0.0, "\n".join(differing) or right),)


def _differing(versions: Mapping[str, str], expected: Expected) -> Iterator[str]:
    for name, wanted in sorted(expected.versions.items()):
        have = versions.get(name)
        if have is None and name not in expected.optional:
            yield f"{name} {' or '.join(wanted)} is planned and not installed"
        elif have is not None and not any(_same_version(have, version) for version in wanted):
            yield f"{name} {' or '.join(wanted)} is planned, and {have} is installed"


def _same_version(have: str, wanted: str) -> bool:
    """Whether an installed version is the planned one; a plan without a local part admits any."""
    try:
        found, planned = Version(have), Version(wanted)
    except InvalidVersion:
        return have == wanted
    return found == planned if planned.local else found.public == planned.public


@dataclass(frozen=True, slots=True)
class Context:
    """The input of a report: the machine, and a plan or an earlier report to compare with."""

    machine: Machine
    expected: Expected | None
    before: Report | None

    def around(self, report: Report) -> Report:
        """The report with its machine, compared with the plan and with the earlier report."""
        made = with_machine(report, self.machine)
        held = held_against(made, self.expected) if self.expected else made
        return compared(held, self.before) if self.before else held


def read_context(machine: Machine, plan: Path | None, before: Path | None) -> Context:
    """Read what a report is compared with.

    Args:
        machine: This one.
        plan: A plan's JSON or a lock.
        before: The JSON of an earlier report.

    Raises:
        UsageError: A file is not there, or is not what it should be.
        ImpossibleError: The lock has no part for this machine.
    """
    expected = read_expected(plan, machine, Catalogue()) if plan else None
    return Context(machine, expected, read_report(before) if before else None)
