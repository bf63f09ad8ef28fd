"""A report in words, for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.dockerfiles.model import Report


def describe(report: Report, name: str) -> str:
    """The findings in the order of the file, each with what to write in its place; then what was not judged.

    Args:
        name: Of the file.
    """
    parts = ["\n".join(lines) for lines in _findings(report, name)]
    if not parts:
        parts = [f"{name}: nothing found that would fail on the machines"]
    if report.unjudged:
        parts.append("\n".join(f"{name}:{one.line}: not judged: {one.text}" for one in report.unjudged))
    return "\n\n".join(parts)


def _findings(report: Report, name: str) -> Iterator[list[str]]:
    for finding in report.findings:
        lines = [f"{name}:{finding.line}: {finding.level}: {finding.text} [{finding.code}]"]
        lines += [f"    {'->' if number == 0 else 'or'} {remedy}" for number, remedy in enumerate(finding.remedies)]
        yield lines
