"""Verify the environments of a fleet on every node: one report for each, folded into one answer.

Reports lie at ``reports/NAME-DIGEST/NODE.json``. A node that has passed is not run again for the same environment.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Literal

import msgspec

from envsolve.errors import UsageError
from envsolve.fleet.engines import Engine, Outcome, Work
from envsolve.fleet.install import environment_of
from envsolve.fleet.jobs import run_on
from envsolve.fleet.model import Inventory, by_reason
from envsolve.fleet.plan import FleetPlan, Group
from envsolve.machine.model import Machine
from envsolve.system.files import from_json, is_file, read_regular, replace_file
from envsolve.verify.report import Report, read_report

SCHEMA: Literal["envsolve.fleet-checks/1"] = "envsolve.fleet-checks/1"
_REPORTS, _WORK = "reports", ".verify-"
_MOST_WORDS = 200
# Jobs may wait in a queue for most of a day.
_FRESH_SECONDS = 24 * 3600.0


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>envsolve fleet verify</title>
<style>
body {{ font-family: sans-serif; margin: 2em }}
td, th {{ padding: 0.2em 1em 0.2em 0; text-align: left; vertical-align: top }}
</style>
</head>
<body>
<h1>envsolve fleet verify</h1>
<p>{made}</p>
<pre>{text}</pre>
<table>
<tr><th>node</th><th>result</th><th>plan</th><th>why</th></tr>
{rows}</table>
</body>
</html>
"""


class NodeResult(msgspec.Struct, frozen=True):
    """The result of verifying a node.

    Attributes:
        status: ``pass``; ``fail`` for a check that failed or a node unlike its class; ``missing`` without a report.
        plan: The plan of the node; None if it has none.
        why: Reasons, if it does not pass.
        earlier: Whether the report is of an earlier run.
    """

    status: Literal["pass", "fail", "missing"]
    plan: str | None = None
    why: tuple[str, ...] = ()
    earlier: bool = False


class _Error(msgspec.Struct, frozen=True):
    """What every command prints as JSON if it fails."""

    schema: Literal["envsolve.error/1"]
    message: str


class FleetReport(msgspec.Struct, frozen=True):
    """The result of verifying a fleet.

    Attributes:
        made: When, ISO 8601.
        compiled_only: Whether kernels were only compiled.
        nodes: Every expected node.
    """

    schema: Literal["envsolve.fleet-checks/1"] = SCHEMA
    made: str | None = None
    compiled_only: bool = False
    nodes: Mapping[str, NodeResult] = {}

    @property
    def passed(self) -> bool:
        """Whether there are nodes, and all pass."""
        return bool(self.nodes) and all(one.status == "pass" for one in self.nodes.values())


class Choice(msgspec.Struct, frozen=True):
    """Which checks to run.

    Attributes:
        compile_only: Only compile, for the GPUs of each node's class.
        quick: Only the fastest checks.
        again: Also run on nodes that have already passed.
        python: The Python with envsolve on the nodes.
    """

    compile_only: bool = False
    quick: bool = False
    again: bool = False
    python: str = sys.executable


def verify_fleet(fleet: Path, made: FleetPlan, inventory: Inventory, engine: Engine, choice: Choice) -> FleetReport:
    """Run the checks on every node that the engine reaches, each in the environment that was planned for it.

    Raises:
        UsageError: An environment is not installed.
        EnvsolveError: The engine fails as a whole.
    """
    known = engine.nodes()
    groups, classes = made.group_of, inventory.class_of
    results: dict[str, NodeResult] = {}
    commands: dict[str, str] = {}
    for node, one in known.items():
        group = groups.get(node)
        if group is None or node not in classes:
            why = made.unreachable.get(node) or "no plan fits this node; see envsolve fleet plan"
            if group is not None:
                why = "the last probe did not reach this node; run envsolve fleet probe, then plan again"
            results[node] = NodeResult("missing", None, (why,))
        elif not choice.again and (earlier := _passed(fleet, group, node, inventory, choice)):
            results[node] = earlier
        elif one.dead:
            results[node] = NodeResult("missing", group.name, (one.dead,))
        elif choice.compile_only and not classes[node].machine.gpus:
            results[node] = NodeResult("missing", group.name, ("the class of this node has no GPU to compile for",))
        else:
            place = environment_of(fleet, group).absolute()
            commands[node] = _command(place, classes[node].machine, choice)
    for node, outcome in _run(fleet, engine, commands).items():
        results[node] = _kept(fleet, groups[node], node, outcome, inventory, choice)
    return _report(results, choice)


def fold_reports(fleet: Path, made: FleetPlan, inventory: Inventory, choice: Choice) -> FleetReport:
    """Judge the reports that are in the fleet's directory, whoever put them there, and run nothing."""
    results = {node: NodeResult("missing", None, (why,)) for node, why in made.unreachable.items()}
    for node, group in made.group_of.items():
        path = report_of(fleet, group, node, choice.compile_only)
        if not is_file(path):
            results[node] = NodeResult("missing", group.name, ("no report",))
            continue
        try:
            results[node] = _judged(node, group, read_report(path), inventory, choice)
        except UsageError as error:
            said = _refusal(path) or f"it printed no report: {error.message.partition(': ')[2]}"
            results[node] = NodeResult("missing", group.name, (said,))
    return _report(results, choice)


def _report(results: Mapping[str, NodeResult], choice: Choice) -> FleetReport:
    return FleetReport(
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        compiled_only=choice.compile_only,
        nodes=dict(sorted(results.items())),
    )


def _command(place: Path, machine: Machine, choice: Choice) -> str:
    words = [choice.python, "-m", "envsolve", "verify", "--prefix", str(place), "--format", "json"]
    if choice.compile_only:
        capabilities = dict.fromkeys(gpu.compute_capability for gpu in machine.gpus or () if gpu.compute_capability)
        words += ["--compile-only", *(word for one in capabilities for word in ("--gpu", one))]
    elif choice.quick:
        words.append("--quick")
    return shlex.join(words)


def _run(fleet: Path, engine: Engine, commands: Mapping[str, str]) -> Mapping[str, Outcome]:
    """Run the commands; what a killed run with the same commands has finished is not done again."""
    if not commands:
        return {}
    key = hashlib.sha256("\0".join([str(fleet.absolute()), *sorted(set(commands.values()))]).encode()).hexdigest()[:8]
    directory = fleet / f"{_WORK}{key}"
    for old in fleet.glob(f"{_WORK}*"):
        if old != directory:
            shutil.rmtree(old, ignore_errors=True)
    work = Work(commands, b"", directory, f"envsolve-verify-{key}")
    outcomes = run_on(engine, work, "verifying", fresh=_FRESH_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)
    return outcomes


def report_of(fleet: Path, group: Group, node: str, compiled: bool = False) -> Path:
    """Where the report of a node is; that of kernels that were only compiled is another."""
    kind = "-compiled" if compiled else ""
    return fleet / _REPORTS / f"{group.environment(fleet).name}{kind}" / f"{node}.json"


def _passed(fleet: Path, group: Group, node: str, inventory: Inventory, choice: Choice) -> NodeResult | None:
    """The result of an earlier run, if the node passed."""
    try:
        report = read_report(report_of(fleet, group, node, choice.compile_only))
    except UsageError:
        return None
    result = msgspec.structs.replace(_judged(node, group, report, inventory, choice), earlier=True)
    return result if result.status == "pass" else None


def _kept(fleet: Path, group: Group, node: str, outcome: Outcome, inventory: Inventory, choice: Choice) -> NodeResult:
    """Keep the report of a node, and judge it."""
    if outcome.text is None:
        return NodeResult("missing", group.name, (outcome.failure or "the check printed nothing",))
    path = report_of(fleet, group, node, choice.compile_only)
    path.parent.mkdir(parents=True, exist_ok=True)
    # What a login prints comes before the report.
    start = outcome.text.find(b"{\n")
    replace_file(path, outcome.text[max(start, 0) :].decode(errors="replace"))
    try:
        report = read_report(path)
    except UsageError as error:
        said = _refusal(path)
        path.unlink()
        why = said or f"it printed no report: {error.message.partition(': ')[2]}"
        return NodeResult("missing", group.name, (why,))
    return _judged(node, group, report, inventory, choice)


def _refusal(path: Path) -> str | None:
    """The error that envsolve printed on the node instead of a report."""
    try:
        return from_json(read_regular(path), _Error).message
    except (OSError, msgspec.MsgspecError):
        return None


def _judged(node: str, group: Group, report: Report, inventory: Inventory, choice: Choice) -> NodeResult:
    why = [*_failures(report), *(() if choice.compile_only else _unlike(node, report, inventory))]
    if not report.passed and not report.failed:
        why.append("nothing could be checked")
    if why:
        # They were seen at the last probe, and may explain the rest.
        why += inventory.faults.get(node, ())
    return NodeResult("fail" if why else "pass", group.name, tuple(why))


def _failures(report: Report) -> Iterator[str]:
    """Name each check that failed, with its cause if that is known."""
    for check in report.checks:
        if check.status == "fail":
            said = next((line for line in reversed(check.detail.splitlines()) if line.strip()), "").strip()
            yield f"{check.name}: {check.cause or said[:_MOST_WORDS] or 'no message'}"


def _unlike(node: str, report: Report, inventory: Inventory) -> Iterator[str]:
    """Say how a node differs from its class: it was changed after the probe."""
    planned, found = inventory.class_of[node].machine, report.machine
    if found is None:
        return
    old, new = (one.driver.version if one.driver else None for one in (planned, found))
    if old != new:
        yield f"driver {new or 'none'} differs from its class ({old or 'none'})"
    before, now = ({gpu.label for gpu in one.gpus or ()} for one in (planned, found))
    if before != now:
        yield f"its GPUs are {', '.join(sorted(now)) or 'none'}, and those of its class {', '.join(sorted(before))}"


def page(report: FleetReport) -> str:
    """The report as one HTML page: nothing is loaded from elsewhere, and no script runs."""
    rows = "".join(
        f"<tr><td>{escape(node)}</td><td>{one.status}</td><td>{escape(one.plan or '')}</td>"
        f"<td>{escape('; '.join(one.why))}</td></tr>\n"
        # What is to be repaired comes first.
        for node, one in sorted(report.nodes.items(), key=lambda item: (item[1].status == "pass", item[0]))
    )
    return _PAGE.format(text=escape(describe(report)), made=escape(report.made or ""), rows=rows)


def describe(report: FleetReport) -> str:
    """Say how many nodes pass, and why the others do not."""
    passed = sum(one.status == "pass" for one in report.nodes.values())
    earlier = sum(one.earlier for one in report.nodes.values())
    kept = f", {earlier} of them in an earlier run" if earlier else ""
    what = " (compiled only)" if report.compiled_only else ""
    lines = [f"{passed} of {len(report.nodes)} nodes pass{kept}{what}"]
    for status, title in (("fail", "fail:"), ("missing", "no report:")):
        reasons = {node: "; ".join(one.why) for node, one in report.nodes.items() if one.status == status}
        if reasons:
            lines += [title, *by_reason(reasons)]
    return "\n".join(lines)
