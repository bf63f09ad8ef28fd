"""Times envsolve against uv, pip and rigsolve on the same requirements, as ratios; what ``make bench`` runs.

Whole processes, in turns, medians. Warm is the cache that an untimed turn has filled, cold an empty one and the live
index, offline the filled one and no network. envsolve plans for an H100 on Linux x86_64; the others resolve for the
same Python. The raw numbers go to ``bench/results/plan.json``, the tables into ``docs/performance.md``.

    python -m bench.plan [--quick] [--only NAME]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import report
from bench.compare import differences
from bench.peers import PYTHON, ROOT, Bench, set_up, versions
from bench.processes import Figure, Tool, in_turns

REQUIREMENTS = Path(__file__).with_name("requirements")
RESULTS = Path(__file__).with_name("results") / "plan.json"
_MACHINES = 200
_CARDS = ("H100", "A100", "RTX 4090", "L4", "T4", "RTX 5090", "B200", "A10")


@dataclass(frozen=True)
class Workload:
    """One comparison.

    Attributes:
        turns: How often each tool runs.
    """

    name: str
    state: str
    tools: Mapping[str, Tool]
    turns: int


def workloads(bench: Bench, turns: int) -> Iterator[Workload]:
    """All of them, the caches filled before they are read."""
    torch, trio, vllm = (
        _asked(bench, name, lines)
        for name, lines in (
            ("torch", ["torch"]),
            ("trio", ["torch", "torchvision", "torchaudio"]),
            ("vllm", ["vllm", "transformers", "accelerate"]),
        )
    )
    yield Workload("nothing", "start", _starts(bench), 2 * turns)
    packages = {"torch": torch, "torch torchvision torchaudio": trio, "vllm transformers accelerate": vllm}
    for name, asked in packages.items():
        pair = {"envsolve": bench.planned(asked), "uv": bench.uv(asked)}
        pip = {"pip": bench.pip(asked, 2)} if asked is not trio else {}
        yield Workload(name, "cold", pair | pip, turns)
        rigsolve = {"rigsolve": bench.rigsolve("torch")} if asked is torch else {}
        yield Workload(name, "warm", pair | rigsolve, turns)
        alone = {"envsolve": bench.planned(asked, "--offline"), "uv": bench.uv(asked, "--offline")}
        yield Workload(name, "offline", alone, turns)
    for file in sorted(REQUIREMENTS.glob("*.txt")):
        yield Workload(file.stem, "warm", {"envsolve": bench.planned(file), "uv": bench.uv(file)}, turns)
    old = _asked(bench, "impossible", ["torch==2.4.*"])
    blackwell = bench.planned(old, target=f"RTX 5090, driver 570.86, python {PYTHON}, linux-x86_64, glibc 2.36")
    refused = {"envsolve": replace(blackwell, good=3)}
    yield Workload("torch==2.4.* on an RTX 5090", "impossible", refused, turns)
    yield Workload(f"torch on {_MACHINES} machines", "warm", _fleets(bench, torch), turns)


def _starts(bench: Bench) -> dict[str, Tool]:
    completion = {"_ENVSOLVE_COMPLETE": "bash_complete", "COMP_WORDS": "envsolve plan --t", "COMP_CWORD": "2"}
    version, complete = bench.envsolve("--version"), bench.envsolve()
    return {
        "python -c pass": Tool((str(bench.own / "bin" / "python"), "-c", "pass")),
        "envsolve --version": version,
        "completion": Tool(complete.command, {**complete.environment, **completion}),
    }


def _fleets(bench: Bench, asked: Path) -> dict[str, Tool]:
    """One machine, and many that differ in card, driver and name, from files."""
    one, many = bench.scratch / "one", bench.scratch / "many"
    for folder, count in ((one, 1), (many, _MACHINES)):
        folder.mkdir(exist_ok=True)
        for number in range(count):
            card = {"name": _CARDS[number % len(_CARDS)]}
            driver = {"version": f"58{number % 2}.{65 + number % 30}.06" if number % 2 == 0 else "590.44.01"}
            machine = {
                "schema": "envsolve.machine/1",
                "platform": {"os": "linux", "arch": "x86_64", "libc": "glibc 2.36"},
                "driver": driver,
                "gpus": [card],
                "python": PYTHON,
            }
            (folder / f"node{number:03}.json").write_text(json.dumps(machine))
    command = ("plan", "-r", str(asked), "--format", "json", "--machine")
    return {"envsolve": bench.envsolve(*command, str(many)), "one machine": bench.envsolve(*command, str(one))}


def _asked(bench: Bench, name: str, lines: list[str]) -> Path:
    path = bench.scratch / f"{name}.in"
    path.write_text("\n".join(lines) + "\n")
    return path


def measured(workload: Workload) -> dict[str, Any]:
    """A workload's figures, and where uv chose other versions."""
    figures = in_turns(workload.tools, workload.turns, cold=workload.state == "cold")
    for figure in figures:
        if figure.code:
            print(f"{figure.tool}: {figure.output.strip()[:500]}", file=sys.stderr)
    by_tool = {figure.tool: figure for figure in figures}
    own, uv = by_tool.get("envsolve"), by_tool.get("uv")
    compared = own is not None and uv is not None and own.code == uv.code == 0
    return {
        "name": workload.name,
        "state": workload.state,
        "figures": [_raw(figure) for figure in figures],
        "packages": len(json.loads(own.output)["packages"]) if own and not own.code else 0,
        "differences": differences(own.output, uv.output) if compared and own and uv else None,
    }


def _raw(figure: Figure) -> dict[str, Any]:
    return {
        "tool": figure.tool,
        "wall": figure.wall,
        "cpu": figure.cpu,
        "memory": figure.memory,
        "code": figure.code,
    }


def main() -> None:
    """Measure, keep the raw numbers, write the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="three turns, and nothing is written")
    options.add_argument("--only", default="", help="workloads whose name holds this text, and nothing is written")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bench = set_up(ROOT / ".venv" / "bench", Path(scratch))
        results: dict[str, Any] = {"machine": report.machine(), "versions": versions(bench), "workloads": []}
        for workload in workloads(bench, 3 if given.quick else 7):
            if given.only in workload.name:
                results["workloads"].append(measured(workload))
                print(report.line(results["workloads"][-1]), file=sys.stderr)
    print(report.tables(results))
    if not (given.quick or given.only):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        report.write_into(ROOT / "docs" / "performance.md", results)


if __name__ == "__main__":
    main()
