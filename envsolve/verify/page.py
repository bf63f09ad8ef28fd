"""A report as one HTML page to attach to a ticket: nothing is loaded from elsewhere, and no script runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape

from envsolve.machine.model import describe as describe_machine
from envsolve.verify.report import Check, Report, again, change_line, summary, writable

# What decides about GPU code is shown; the rest of an environment folds away.
_DECIDING = ("python", "driver", "torch", "triton", "envsolve")
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1d21; --paper: #fff; --soft: #5b6470; --line: #d8dde3; --box: #f5f7f9;
  --pass: #14713d; --fail: #b3261e; --skip: #6b5b00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7eaee; --paper: #15181c; --soft: #9aa5b1; --line: #333a42; --box: #1e2329;
    --pass: #5fd08f; --fail: #ff8a80; --skip: #e0c34d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; } .soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { font-weight: 600; } thead th { border-top: 0; color: var(--soft); } td.fixed, thead th { white-space: nowrap; }
pre { margin: .35rem 0; padding: .6rem .75rem; background: var(--box); border: 1px solid var(--line);
  border-radius: 4px; white-space: pre-wrap; overflow-wrap: anywhere; font: 12.5px/1.45 ui-monospace, monospace; }
.pass { color: var(--pass); } .fail { color: var(--fail); } .skip { color: var(--skip); }
.status { font-weight: 700; }
summary { cursor: pointer; color: var(--soft); }
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #444; --line: #bbb; --box: #fff;
    --pass: #14713d; --fail: #b3261e; --skip: #6b5b00; }
  body { max-width: none; padding: 0; font-size: 11px; } tr, pre { break-inside: avoid; } h2 { break-after: avoid; } }
"""


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
    text = "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # The browser itself holds the page to what it promises.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            *parts,
            "</body>",
            "</html>",
            "",
        ]
    )
    return writable(text)


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
    deciding = [name for name in versions if name in _DECIDING or name.startswith("nvidia-")]
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
