"""A report in words, for a terminal."""

from __future__ import annotations

import re
import shlex
from collections import Counter

from envsolve.verify.report import LOADER, PLAN, Change, Check, Report

_INDENT = " " * 6
#: Would move or recolour the terminal, or hide what stands there: raw errors hold what libraries print.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_CAPABILITY = re.compile(r"\d+\.\d")


def describe(report: Report) -> str:
    """Say how each check ended, a line per check and GPU; for a failure its error and the command that repeats it."""
    lines = [line for check in report.checks for line in _check_lines(check, report)]
    return writable("\n".join([*lines, summary(report), *_change_lines(report)])).translate(_CONTROLS)


def _check_lines(check: Check, report: Report) -> list[str]:
    where = f" [{check.gpu}]" if check.gpu else ""
    took = f" {check.seconds:.1f} s" if check.command else ""
    first, *rest = check.detail.splitlines() or [""]
    lines = [f"{check.status:<4}  {check.name}{where}{took}: {first}"]
    if check.status == "fail":
        lines += [_INDENT + line for line in rest]
        if check.cause:
            lines.append(f"{_INDENT}cause: {check.cause}")
        lines.append(f"{_INDENT}repeat: {again(check, report)}")
        if check.command:
            lines.append(f"{_INDENT}its process: {check.command}")
    return lines


def writable(text: str) -> str:
    """A text that is UTF-8: a path that is not has its bytes as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def again(check: Check, report: Report) -> str:
    """The command line that verifies with this check alone; compiling checks name a compute capability as their GPU."""
    options: list[str] = []
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
    """How many checks ended in which way, and how long all took; importing torch is no check's work, and told apart."""
    count = Counter(check.status for check in report.checks)
    text = f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped"
    if report.seconds is not None:
        text += f" in {report.seconds:.1f} s"
        if report.import_seconds is not None:
            text += f", {max(0.0, report.seconds - report.import_seconds):.1f} s beyond importing torch once"
    if report.passed or report.failed:
        return text
    return f"{text}: nothing could be checked, so nothing is proved; the lines above say what is missing"


def _change_lines(report: Report) -> list[str]:
    if report.changes is None:
        return []
    if not report.changes:
        return ["what both have is as in the earlier report"]
    return ["not as in the earlier report:", *(f"{_INDENT}{change_line(change)}" for change in report.changes)]


def change_line(change: Change) -> str:
    """One change in words: ``version torch: 2.10.0 -> 2.11.0``."""
    where = f" [{change.gpu}]" if change.gpu else ""
    mark = "; it passed before, and passes no longer" if change.worse else ""
    absent = "not run" if change.kind == "check" else "absent"
    return f"{change.kind} {change.name}{where}: {change.before or absent} -> {change.now or absent}{mark}"
