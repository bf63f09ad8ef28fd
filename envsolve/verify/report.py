"""The results of verification: the values behind the ``envsolve.checks/1`` JSON."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import structs

from envsolve.errors import UsageError
from envsolve.machine.model import Gpu, Machine
from envsolve.system.files import read_regular

SCHEMA: Literal["envsolve.checks/1"] = "envsolve.checks/1"
LOADER = "loader"
"""The check that reads every library of an environment; it needs no GPU, and no GPU to compile for."""
FILES = "installed-files"
"""The check that compares installed files with their records; it proves nothing about what they do."""
PLAN = "plan"
"""The check that holds the packages of an environment against a plan; it proves nothing about what they do."""
Status = Literal["pass", "fail", "skip"]
Kind = Literal["checks", "fast-paths", "bench", "soak"]
"""The subject of a report: correctness, or one of the measures."""
Explain = Callable[[str], tuple[str | None, str | None]]
"""Reads an error text; returns the code of its root cause and what else to say about it, each None if unknown."""


def unexplained(text: str) -> tuple[None, None]:
    """Return no explanation."""
    return None, None


@dataclass(frozen=True, slots=True)
class Check:
    """One step of verification and how it ended.

    Attributes:
        name: Stable name, ``triton-kernel``.
        gpu: The GPU it ran on, ``0: H100 80GB HBM3 (cc 9.0)``, or the compute capability that it compiled for,
            ``9.0``; None for a check of the environment as a whole.
        status: ``pass``, ``fail``, or ``skip`` for what could not be tried.
        seconds: Wall time of the check's process; 0 where none was started.
        detail: What was seen; for a failure the raw error text.
        cause: Root cause of a failure or a skip if its text shows it, one of the documented codes; otherwise None.
        command: The shell command that repeats just this check; None if none was started.
        seen: What else it saw, by name: ``code`` of torch (``sass``, ``ptx``), version and ``mode`` of a driver,
            ``ptxas`` and its release, ``nvcc``, ...
        expected: What the plan says about these, by the same names, in words; empty without a plan.
        imports: Seconds of importing torch within ``seconds``; None if it was not imported.
    """

    name: str
    gpu: str | None
    status: Status
    seconds: float
    detail: str
    cause: str | None = None
    command: str | None = None
    seen: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)
    imports: float | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that was tried in an environment's own interpreter.

    Attributes:
        name: Stable name, ``torch-import``.
        gpu: The GPU that it was tried on; None if it needs none.
        outcome: ``crashes`` is an end by a signal or without a result, ``hangs`` one by the time limit.
        detail: What was seen: the error's own words, or how the process ended.
        printed: The last of what it printed, the traceback included.
        seconds: Wall time.
        seen: Facts by name: ``file`` and ``version`` of torch, ``mapped`` (files of GPU libraries, one a line).
    """

    name: str
    gpu: str | None
    outcome: Literal["works", "fails", "crashes", "hangs", "skipped"]
    detail: str
    printed: str = ""
    seconds: float = 0.0
    seen: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it was tried and did not work."""
        return self.outcome not in ("works", "skipped")


@dataclass(frozen=True, slots=True)
class Change:
    """A difference from an earlier report.

    Attributes:
        kind: ``version`` (of a package or the driver), ``check`` (how it ended), ``time`` (how long it took), ``gpu``,
            or ``python``.
        name: Of the package or the check.
        gpu: Of the check, as there.
        before: What it was; None for what is new.
        now: What it is; None for what is gone.
        worse: Whether it passed before and passes no longer.
    """

    kind: Literal["version", "check", "time", "gpu", "python"]
    name: str
    gpu: str | None
    before: str | None
    now: str | None
    worse: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Every check of one verification, in the order of the ladder.

    Attributes:
        python: The interpreter that was verified.
        made: When it began, ISO 8601 with the offset from UTC.
        seconds: Wall time of all checks; they run side by side, so it is less than the sum of theirs.
        machine: Where it ran, as far as it decides.
        versions: What is installed in the environment, and ``envsolve``, ``python`` and ``driver``: version by name.
        plan: The file that the checks were compared with.
        changes: The differences from an earlier report; None if there was none to compare.
        kind: Whether it is of checks, or of measures, in which a skip is a path that is not offered.
    """

    schema: Literal["envsolve.checks/1"] = SCHEMA
    python: str | None = None
    checks: tuple[Check, ...] = ()
    made: str | None = None
    seconds: float | None = None
    machine: Machine | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    plan: str | None = None
    changes: tuple[Change, ...] | None = None
    kind: Kind = "checks"

    @property
    def passed(self) -> bool:
        """Whether something was checked and nothing failed; skips and package checks alone do not pass."""
        return not self.failed and any(
            check.status == "pass" and check.name not in (PLAN, FILES) for check in self.checks
        )

    @property
    def failed(self) -> bool:
        """Whether a check failed; a report may be neither passed nor failed, if nothing could be checked."""
        return any(check.status == "fail" for check in self.checks)

    @property
    def worse(self) -> bool:
        """Whether a check that passed in the earlier report no longer passes, even if it could not run."""
        return any(change.worse for change in self.changes or ())

    @property
    def import_seconds(self) -> float | None:
        """Seconds of the fastest import of torch among the processes; None if none imported it."""
        return min((check.imports for check in self.checks if check.imports is not None), default=None)


# What is not as it was in an earlier report: versions, GPUs, how checks ended, how long they took. Pure.


#: A check's time is told where it grew or shrank by this factor, and by this many seconds.
_FACTOR, _SECONDS = 1.5, 1.0

Key = tuple[str, str]


def changes(before: Report, now: Report) -> tuple[Change, ...]:
    """Everything that differs; what is worse comes first, then versions and GPUs, then checks, then times."""
    found = [*_versions(before, now), *_cards(before, now), *_checks(before, now), *_times(before, now)]
    return tuple(sorted(found, key=lambda change: not change.worse))


def _versions(before: Report, now: Report) -> Iterator[Change]:
    if not before.versions or not now.versions:  # A report of an older envsolve has none.
        return
    for name in sorted({*before.versions, *now.versions}):
        old, new = before.versions.get(name), now.versions.get(name)
        if old != new:
            yield Change("version", name, None, old, new)


def _cards(before: Report, now: Report) -> Iterator[Change]:
    if before.machine is None or now.machine is None:
        return
    old, new = (", ".join(g.label for g in report.gpus or ()) for report in (before.machine, now.machine))
    if old != new:
        yield Change("gpu", "GPUs", None, old or "none", new or "none")


def _checks(before: Report, now: Report) -> Iterator[Change]:
    """How checks ended that both reports have; one that another choice of checks left out is not a change."""
    old, new = _by_place(before), _by_place(now)
    for name in dict.fromkeys(check.name for check in (*now.checks, *before.checks)):
        there = [place for known, place in (*old, *new) if known == name]
        # If the driver lists no GPU, one line without a GPU stands for all.
        for place in dict.fromkeys(place for place in there if place) or [""]:
            was = old.get((name, place)) or old.get((name, ""))
            is_now = new.get((name, place)) or new.get((name, ""))
            # A check that is in one report only counts if the other one tried it elsewhere.
            if (was or _tried(old, name, place)) and (is_now or _tried(new, name, place)):
                yield from _ended_otherwise(name, was, is_now)


def _ended_otherwise(name: str, was: Check | None, now: Check | None) -> Iterator[Change]:
    before, after = (_ending(check) if check else None for check in (was, now))
    if before != after:
        gpu = next((check.gpu for check in (now, was) if check and check.gpu), None)
        worse = was is not None and was.status == "pass" and (now is None or now.status != "pass")
        yield Change("check", name, gpu, before, after, worse)


def _tried(checks: Mapping[Key, Check], name: str, place: str) -> bool:
    """Whether a check ran in other places of that kind: on GPUs, or compiling for GPUs."""
    return any(known == name and ("." in other) == ("." in place) for known, other in checks)


def _times(before: Report, now: Report) -> Iterator[Change]:
    old = _by_place(before)
    for key, check in _by_place(now).items():
        was = old.get(key)
        if was is None or was.status != "pass" or check.status != "pass":
            continue
        low, high = sorted((was.seconds, check.seconds))
        if high >= low * _FACTOR and high - low >= _SECONDS:
            yield Change("time", check.name, check.gpu, f"{was.seconds:.1f} s", f"{check.seconds:.1f} s")


def _by_place(report: Report) -> Mapping[Key, Check]:
    """Checks by name and by the number of their GPU, or the compute capability that they compile for.

    The number, not the GPU's name: another GPU in its place is reported once, and not for every check.
    """
    return {(check.name, (check.gpu or "").partition(": ")[0]): check for check in report.checks}


def _ending(check: Check) -> str:
    return f"fail ({check.cause})" if check.status == "fail" and check.cause else check.status


# A report with what it is of, and a report read back.


def with_machine(report: Report, machine: Machine) -> Report:
    """The report with the relevant facts of its machine, and the versions of the driver and envsolve."""
    decides = structs.replace(
        machine, python=None, pythons=None, installers=None, sources={}, gpus=_without_ids(machine)
    )
    driver = machine.driver.version if machine.driver else None
    versions: Mapping[str, str] = {
        **report.versions,
        # The package itself is not imported: its public API lies above this one.
        "envsolve": sys.modules["envsolve"].__version__,
        **({"driver": driver} if driver else {}),
    }
    return replace(report, machine=decides, versions=versions)


def _without_ids(machine: Machine) -> tuple[Gpu, ...] | None:
    """The GPUs without serial numbers and UUIDs: a report is shown to others."""
    return None if machine.gpus is None else tuple(structs.replace(gpu, uuid=None) for gpu in machine.gpus)


def compared(report: Report, before: Report) -> Report:
    """The report, with what is not as in an earlier one."""
    return replace(report, changes=changes(before, report))


class _Named(msgspec.Struct):
    """Fields that identify the document; a report without any check would match any other JSON object."""

    schema: str


def read_report(path: Path) -> Report:
    """Read a report that ``envsolve verify --format json`` wrote.

    Raises:
        UsageError: The file does not exist, or is not a report.
    """
    hint = "envsolve verify ... --format json -o FILE makes one"
    try:
        # Not msgspec's decoder: it refuses the escapes that stand for the bytes of a path that is no UTF-8.
        value = json.loads(read_regular(path))
        msgspec.convert(value, _Named)
        return msgspec.convert(value, Report)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint=hint) from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a report of envsolve verify: {error}", hint=hint) from error


# A report in words, for a terminal.


_INDENT = " " * 6
_KERNEL_CHARACTERS = 60
_FOLDED = 3  # so many skipped checks in a row share a line
_MEASURES: Mapping[str, Sequence[str]] = {"bench": ["--bench"], "soak": ["--minutes", "1"]}
#: Would move or recolour the terminal, or hide what stands there: raw errors hold what libraries print.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_CAPABILITY = re.compile(r"\d+\.\d")


def describe(report: Report) -> str:
    """Say how each check ended, a line per check and GPU; for a failure its error and the command that repeats it."""
    lines: list[str] = []
    for (status, detail, run), alike in groupby(report.checks, lambda one: (one.status, one.detail, bool(one.command))):
        checks = [*alike]
        # Without a GPU nearly all checks are skipped for the same reason, some thirty lines of it.
        if status == "skip" and not run and len(checks) >= _FOLDED and report.kind != "fast-paths":
            lines.append(f"skip  {len(checks)} checks: {detail}: {', '.join(check.name for check in checks)}")
        else:
            lines += [line for check in checks for line in _check_lines(check, report)]
    return writable("\n".join([*lines, summary(report), *_change_lines(report)])).translate(_CONTROLS)


def _check_lines(check: Check, report: Report) -> list[str]:
    where = f" [{check.gpu}]" if check.gpu else ""
    took = f" {check.seconds:.1f} s" if check.command else ""
    first, *rest = check.detail.splitlines() or [""]
    lines = [f"{check.status:<4}  {check.name}{where}{took}: {first}"]
    if report.kind == "fast-paths" and check.status != "fail" and check.gpu:
        kernel = f" [{check.seen['kernel'][:_KERNEL_CHARACTERS]}]" if "kernel" in check.seen else ""
        return [f"{'yes' if check.status == 'pass' else 'no':<4}  {check.name:<26} {first}{kernel}"]
    if check.status == "pass":
        lines += [_INDENT + line for line in rest]
    if check.status == "fail":
        lines += [_INDENT + line for line in rest]
        if check.cause:
            lines.append(f"{_INDENT}cause: {check.cause}")
        lines.append(f"{_INDENT}repeat: {again(check, report)}")
        if check.command:
            lines.append(f"{_INDENT}its process: {check.command}")
    return lines


def writable(text: str) -> str:
    """The text as valid UTF-8: bytes of a path that are not UTF-8 become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def again(check: Check, report: Report) -> str:
    """The command line that runs only this check; compiling checks name a compute capability as their GPU."""
    options: list[str] = []
    if report.kind in ("bench", "soak"):
        return shlex.join(["envsolve", "verify", "--python", report.python or "python", *_MEASURES[report.kind]])
    if report.kind == "fast-paths":
        options = ["--fast-paths"]
    if check.name == LOADER:
        options = ["--compile-only"]
    elif check.gpu and _CAPABILITY.fullmatch(check.gpu):
        options = ["--compile-only", "--gpu", check.gpu]
    if report.plan and (check.expected or check.name == PLAN):
        options += ["--plan", report.plan]
    # Packages are held against a plan whatever runs; the driver's check takes the least time.
    name = "driver" if check.name == PLAN else check.name
    return shlex.join(["envsolve", "verify", "--python", report.python or "python", *options, "--only", name])


def summary(report: Report) -> str:
    """How many checks ended in which way, and how long all took; the import of torch is counted separately."""
    count = Counter(check.status for check in report.checks)
    text = f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped"
    if report.seconds is not None:
        text += f" in {report.seconds:.1f} s"
        if report.import_seconds is not None:
            text += f", {max(0.0, report.seconds - report.import_seconds):.1f} s beyond importing torch once"
    if report.passed or report.failed:
        return text
    return f"{text}: {'no GPU check could run' if count['pass'] else 'nothing could be checked'}; see the lines above"


def _change_lines(report: Report) -> list[str]:
    if report.changes is None:
        return []
    if not report.changes:
        return ["the checks in both reports have the same results"]
    return ["not as in the earlier report:", *(f"{_INDENT}{change_line(change)}" for change in report.changes)]


def change_line(change: Change) -> str:
    """One change in words: ``version torch: 2.10.0 -> 2.11.0``."""
    where = f" [{change.gpu}]" if change.gpu else ""
    mark = "; it passed before, and no longer does" if change.worse else ""
    absent = "not run" if change.kind == "check" else "absent"
    return f"{change.kind} {change.name}{where}: {change.before or absent} -> {change.now or absent}{mark}"
