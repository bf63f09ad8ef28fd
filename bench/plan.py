"""Times envsolve against uv, pip, rigsolve and py-rattler on the same questions; what ``make bench`` runs.

Whole processes, in turns, medians. envsolve plans for an H100 on Linux x86_64; the others resolve for the same Python.
The raw numbers go to ``bench/results/plan.json``, the tables into ``bench/README.md``; until all is measured, to
``.venv/bench/unfinished.json``, from where ``--resume`` takes what a run that was broken off had come to.

    python -m bench.plan [--quick] [--only NAME] [--resume]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import report
from bench.compare import differences
from bench.peers import ROOT, set_up, versions
from bench.processes import Figure, in_turns
from bench.workloads import Workload, workloads

RESULTS = Path(__file__).with_name("results") / "plan.json"
_BENCH = ROOT / ".venv" / "bench"
_UNFINISHED = _BENCH / "unfinished.json"
_TURNS, _QUICK = 7, 3


def measured(workload: Workload, turns: int) -> dict[str, Any]:
    """A workload's figures, and where its peer chose other versions. A tool that is not installed is left out."""
    tools = {name: tool for name, tool in workload.tools.items() if Path(tool.command[0]).exists()}
    figures = in_turns(tools, turns * workload.weight, workload.state)
    for figure in figures:
        if figure.code:
            print(f"{figure.tool}: {figure.output.strip()[:500]}", file=sys.stderr)
    by_tool = {figure.tool: figure for figure in figures if not figure.code}
    own, peer = by_tool.get("envsolve"), by_tool.get(workload.peer)
    planned = own is not None and own.output.startswith("{")
    return {
        "name": workload.name,
        "state": workload.state,
        "figures": [_raw(figure) for figure in figures],
        "packages": len(json.loads(own.output)["packages"]) if own and planned else 0,
        "peer": workload.peer,
        "differences": differences(own.output, peer.output) if own and peer else None,
    }


def _raw(figure: Figure) -> dict[str, Any]:
    return {
        "tool": figure.tool,
        "wall": figure.wall,
        "cpu": figure.cpu,
        "memory": figure.memory,
        "code": figure.code,
    }


def _broken_off(resume: bool) -> Mapping[tuple[str, str], dict[str, Any]]:
    """What an earlier run measured, by workload and state."""
    if not (resume and _UNFINISHED.exists()):
        return {}
    found = json.loads(_UNFINISHED.read_text(encoding="utf-8"))["workloads"]
    return {(one["name"], one["state"]): one for one in found}


def main() -> None:
    """Measure, keep the raw numbers, write the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help=f"{_QUICK} turns, and nothing is written")
    options.add_argument("--only", default="", help="workloads whose name holds this text, and nothing is written")
    options.add_argument("--resume", action="store_true", help="go on where the last run was broken off")
    given = options.parse_args()
    whole = not (given.quick or given.only)
    known = _broken_off(given.resume)
    with tempfile.TemporaryDirectory() as scratch:
        bench = set_up(_BENCH, Path(scratch))
        results: dict[str, Any] = {"machine": report.machine(), "versions": versions(bench), "workloads": []}
        for workload in workloads(bench):
            if given.only not in workload.name:
                continue
            one = known.get((workload.name, workload.state)) or measured(workload, _QUICK if given.quick else _TURNS)
            results["workloads"].append(one)
            print(report.line(one), file=sys.stderr)
            if whole:
                _UNFINISHED.write_text(json.dumps(results), encoding="utf-8")
    print(report.tables(results))
    if whole:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        report.write_into(ROOT / "bench" / "README.md", results)
        _UNFINISHED.unlink()


if __name__ == "__main__":
    main()
