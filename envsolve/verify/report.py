"""What verification found: the values behind the ``envsolve.checks/1`` JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SCHEMA: Literal["envsolve.checks/1"] = "envsolve.checks/1"
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
        seen: What else it saw, by name: ``code`` of torch (``sass``, ``ptx``), ``cuda`` and ``newest_ptx`` of a driver.
    """

    name: str
    gpu: str | None
    status: Status
    seconds: float
    detail: str
    cause: str | None = None
    command: str | None = None
    seen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """Every check of one verification, in the order in which they ran.

    Attributes:
        python: The interpreter that was verified.
    """

    schema: Literal["envsolve.checks/1"] = SCHEMA
    python: str | None = None
    checks: tuple[Check, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether something was checked and nothing failed; a report of skips alone has proved nothing."""
        return not self.failed and any(check.status == "pass" for check in self.checks)

    @property
    def failed(self) -> bool:
        """Whether a check failed; a report may be neither passed nor failed, where nothing could be checked."""
        return any(check.status == "fail" for check in self.checks)
