"""A report in words, for a terminal."""

from __future__ import annotations

import re
import shlex
from collections import Counter

from envsolve.verify.report import Check, Report

_INDENT = " " * 6
_CAPABILITY = re.compile(r"\d+\.\d")


def describe(report: Report) -> str:
    """Say how each check ended, a line per check and GPU; for a failure its error and the command that repeats it."""
    lines = [line for check in report.checks for line in _check_lines(check, report.python)]
    return "\n".join([*lines, _summary(report)])


def _check_lines(check: Check, python: str | None) -> list[str]:
    where = f" [{check.gpu}]" if check.gpu else ""
    took = f" {check.seconds:.1f} s" if check.command else ""
    first, *rest = check.detail.splitlines() or [""]
    lines = [f"{check.status:<4}  {check.name}{where}{took}: {first}"]
    if check.status == "fail":
        lines += [_INDENT + line for line in rest]
        if check.cause:
            lines.append(f"{_INDENT}cause: {check.cause}")
        lines.append(f"{_INDENT}repeat: {_again(check, python)}")
        if check.command:
            lines.append(f"{_INDENT}its process: {check.command}")
    return lines


def _again(check: Check, python: str | None) -> str:
    """The command line that verifies with this check alone; compiling checks name a compute capability as their GPU."""
    where = ["--compile-only", "--gpu", check.gpu] if check.gpu and _CAPABILITY.fullmatch(check.gpu) else []
    return shlex.join(["envsolve", "verify", "--python", python or "python", *where, "--only", check.name])


def _summary(report: Report) -> str:
    count = Counter(check.status for check in report.checks)
    text = f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped"
    if count["pass"] or count["fail"]:
        return text
    return f"{text}: nothing could be checked, so nothing is proved; the lines above say what is missing"
