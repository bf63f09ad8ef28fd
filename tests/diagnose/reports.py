"""The short reports of ``reports.json``, each with what is diagnosed of it, found once for all tests that read it."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import envsolve
from envsolve.diagnose.model import Diagnoses
from envsolve.machine.model import Machine

REPORTS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("reports.json").read_text(encoding="utf-8"))
_BY_NAME = {report["name"]: report for report in REPORTS}


@functools.cache
def diagnosed(name: str) -> tuple[Diagnoses, Machine | None]:
    """The diagnoses of a report, and the machine that it names."""
    report = _BY_NAME[name]
    machine = envsolve.describe_target(report["target"]) if "target" in report else None
    return envsolve.diagnose(report["log"], [machine] if machine else None, installed=report.get("installed")), machine


def assert_a_fix(log: str, cause: str, fix: str, among: slice = slice(None)) -> None:
    """The first diagnosis of a report is a cause, and a pattern is in the text or the command of some of its fixes."""
    first = envsolve.diagnose(log).diagnoses[0]
    assert first.cause == cause
    said = " ".join(f"{remedy.text} {remedy.command or ''}" for remedy in first.remedies[among])
    assert re.search(fix, said, re.DOTALL), said
