"""What a report is made on and held against: the machine, a plan, an earlier report. Read before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from envsolve.verify.expectations import Expected, held_against, read_expected
from envsolve.verify.report import Report, compared, read_report, with_machine


@dataclass(frozen=True, slots=True)
class Context:
    """See the module; made by :func:`read_context`."""

    machine: Machine
    expected: Expected | None
    before: Report | None

    def around(self, report: Report) -> Report:
        """The report with its machine, held against the plan, and compared with the earlier one."""
        made = with_machine(report, self.machine)
        held = held_against(made, self.expected) if self.expected else made
        return compared(held, self.before) if self.before else held


def read_context(machine: Machine, plan: Path | None, before: Path | None) -> Context:
    """Read what a report is to be held against.

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
