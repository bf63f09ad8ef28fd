"""What verification found: the values behind the ``envsolve.checks/1`` JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from envsolve.machine.model import Machine

SCHEMA: Literal["envsolve.checks/1"] = "envsolve.checks/1"
LOADER = "loader"
"""The check that reads every library of an environment; it needs no GPU, and no card to compile for."""
PLAN = "plan"
"""The check that holds the packages of an environment against a plan; it proves nothing of what they do."""
Status = Literal["pass", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Check:
    """One step of verification and how it ended.

    Attributes:
        name: Stable name, ``triton-kernel``.
        gpu: The GPU it ran on, ``0: NVIDIA H100 80GB HBM3 (cc 9.0)``, or the compute capability that it compiled for,
            ``9.0``; None for a check of the environment as a whole.
        status: ``pass``, ``fail``, or ``skip`` for what could not be tried.
        seconds: Wall time of the check's process; 0 where none was started.
        detail: What was seen; for a failure the raw error text.
        cause: Root cause of a failure or a skip where its text tells it, one of the documented codes; else None.
        command: The shell command that repeats just this check; None where none was started.
        seen: What else it saw, by name: ``code`` of torch (``sass``, ``ptx``), ``cuda`` and ``mode`` of a driver,
            ``ptxas`` and its CUDA, ``nvcc``, ...
        expected: What a plan says of these, by the same names, in words; empty where no plan was held against it.
        imports: Seconds of importing torch within ``seconds``; None where it was not imported.
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
class Change:
    """Something that is not as it was in an earlier report.

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
        plan: The file that the checks were held against.
        changes: What is not as in an earlier report; None where none was compared.
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

    @property
    def passed(self) -> bool:
        """Whether something was checked and nothing failed; a report of skips, or of packages alone, proves nothing."""
        return not self.failed and any(check.status == "pass" and check.name != PLAN for check in self.checks)

    @property
    def failed(self) -> bool:
        """Whether a check failed; a report may be neither passed nor failed, where nothing could be checked."""
        return any(check.status == "fail" for check in self.checks)

    @property
    def worse(self) -> bool:
        """Whether a check that passed in the earlier report passes no longer, be it that it could not be tried."""
        return any(change.worse for change in self.changes or ())

    @property
    def import_seconds(self) -> float | None:
        """Seconds that importing torch took the process that had to wait least for it; None where none imported it."""
        return min((check.imports for check in self.checks if check.imports is not None), default=None)
