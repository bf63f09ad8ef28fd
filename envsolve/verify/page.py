"""A report as one HTML page to attach to a ticket: nothing is loaded from elsewhere, and no script runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

from envsolve.binaries.names import is_toolkit_package
from envsolve.machine.model import describe as describe_machine
from envsolve.verify.report import Check, Report, again, change_line, summary, writable

# The browser itself holds the page to what it promises.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
# What decides about GPU code is shown; the rest of an environment folds away.
_DECIDING = ("python", "driver", "torch", "triton", "envsolve")


def page(report: Report) -> str:
    """The whole page. It holds every check, every raw error and the commands that repeat them."""
    title = f"envsolve verify: {_verdict(report)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(summary(report))}</p>",
        f'<p class="soft">{escape(", ".join(_made(report)))}</p>',
        *_section("Failures", list(_failures(report))),
        *_section("Not as in the earlier report", list(_changes(report))),
        *_section("Checks", list(_checks(report))),
        *_section("Expected and seen", list(_expectations(report))),
        *_section("Machine", list(_machine(report))),
        *_section("Versions", list(_versions(report.versions))),
    ]
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    body = "\n".join(parts)
    return writable(_PAGE.format(title=escape(title), style=style, body=body))


def _verdict(report: Report) -> str:
    if report.failed:
        return "failed"
    return "passed" if report.passed else "nothing could be checked"


def _made(report: Report) -> Iterator[str]:
    if report.made:
        yield report.made
    if report.python:
        yield report.python
    if report.plan:
        yield f"held against {report.plan}"


def _section(title: str, content: list[str]) -> list[str]:
    return [f"<h2>{escape(title)}</h2>", *content] if content else []


def _failures(report: Report) -> Iterator[str]:
    for check in report.checks:
        if check.status != "fail":
            continue
        cause = f" &middot; cause: <code>{escape(check.cause)}</code>" if check.cause else ""
        yield f'<p><span class="status fail">{escape(_where(check))}</span>{cause}</p>'
        yield f"<pre>{escape(check.detail)}</pre>"
        yield f'<p class="soft">This check alone:</p><pre>{escape(again(check, report))}</pre>'
        if check.command:
            yield f'<p class="soft">Its process, without a time limit:</p><pre>{escape(check.command)}</pre>'


def _changes(report: Report) -> Iterator[str]:
    for change in report.changes or ():
        mark = ' class="fail"' if change.worse else ""
        yield f"<p{mark}>{escape(change_line(change))}</p>"
    if report.changes == ():
        yield "<p>Nothing has changed.</p>"


def _checks(report: Report) -> Iterator[str]:
    yield from _table(
        ("", "Check", "GPU", "Time", "What was seen"),
        (
            (
                f'<td class="fixed status {check.status}">{check.status}</td>',
                _fixed(check.name),
                _cell(check.gpu or ""),
                _fixed(_time(check)),
                _cell((check.detail.splitlines() or [""])[0] if check.status == "fail" else check.detail),
            )
            for check in report.checks
        ),
    )


def _time(check: Check) -> str:
    if not check.seconds:
        return ""
    text = f"{check.seconds:.1f} s"
    return f"{text} ({check.imports:.1f} s importing torch)" if check.imports is not None else text


def _expectations(report: Report) -> Iterator[str]:
    rows = [
        (_cell(_where(check)), _cell(name), _cell(check.expected.get(name, "")), _cell(seen))
        for check in report.checks
        for name, seen in check.seen.items()
    ]
    if rows:
        yield from _table(("Check", "", "Expected by the plan", "Seen"), rows)


def _machine(report: Report) -> Iterator[str]:
    if report.machine is not None:
        yield f"<pre>{escape(describe_machine(report.machine))}</pre>"


def _versions(versions: Mapping[str, str]) -> Iterator[str]:
    if not versions:
        return
    deciding = [name for name in versions if name in _DECIDING or is_toolkit_package(name)]
    yield from _table(("", ""), ((_cell(name), _cell(versions[name])) for name in sorted(deciding)))
    others = sorted(set(versions) - set(deciding))
    if others:
        lines = "\n".join(f"{name} {versions[name]}" for name in others)
        yield f"<details><summary>{len(others)} more</summary><pre>{escape(lines)}</pre></details>"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield "<table>"
    if any(heads):
        yield "<thead><tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr></thead>"
    yield "<tbody>"
    yield from ("<tr>" + "".join(cells) + "</tr>" for cells in rows)
    yield "</tbody></table>"


def _cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _fixed(text: str) -> str:
    """A cell that is not broken into lines."""
    return f'<td class="fixed">{escape(text)}</td>'


def _where(check: Check) -> str:
    return f"{check.name} [{check.gpu}]" if check.gpu else check.name
