"""The bench's results as Markdown, between two marks in ``bench/README.md``."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_BEGIN, _END = "<!-- made by `make bench` -->\n", "<!-- end of what `make bench` made -->\n"
_PEERS = ("uv", "pip", "rigsolve", "py-rattler", "one machine")
_APART = ("start", "verdicts")  # tables of their own


def machine() -> dict[str, Any]:
    """What it was measured on, and how busy that was."""
    model = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else ""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "model": model,
        "load": round(os.getloadavg()[0], 1),
    }


def line(workload: Mapping[str, Any]) -> str:
    """Progress: a workload and its medians."""
    said = [f"{f['tool']} {'failed' if f['code'] else f'{_median(f):.2f} s'}" for f in workload["figures"]]
    return f"{workload['name']}, {workload['state']}: {', '.join(said)}"


def tables(results: Mapping[str, Any]) -> str:
    """All that the document says of a run."""
    host, tools = results["machine"], results["versions"]
    peers = ", ".join(f"{name} {version}" for name, version in tools.items() if name not in ("python", "envsolve"))
    workloads = results["workloads"]
    compared = [workload for workload in workloads if workload["state"] not in _APART]
    parts = [
        f"Measured on {host['date']}: {host['system']}, {host['cpus']} CPUs ({host['model']}), load {host['load']} at "
        f"the start; Python {tools['python']}, {peers}.\n",
        "\n".join(_over(workloads, "start", "start")),
        "\n".join(_over(workloads, "verdicts", "verdicts in one process")),
    ]
    if compared:
        parts += ["\n".join(lines(compared)) for lines in (_ratios, _each, _differences)]
    return "\n".join(part for part in parts if part)


def write_into(document: Path, results: Mapping[str, Any]) -> None:
    """Replace what stands between the marks."""
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    document.write_text(f"{before}{_BEGIN}\n{tables(results)}\n{_END}{after}", encoding="utf-8")


def _over(workloads: Sequence[Mapping[str, Any]], state: str, title: str) -> Iterator[str]:
    """What processes take over the first of them, which they all begin with."""
    for workload in workloads:
        if workload["state"] == state:
            bare, *others = workload["figures"]
            yield f"| {title} | ms | over {bare['tool']} | CPU ms | peak MiB |"
            yield "|---|---:|---:|---:|---:|"
            for figure in workload["figures"]:
                name = figure["tool"] if figure["tool"] != "envsolve" else workload["name"]
                if figure["code"]:
                    yield f"| {name} | fails | | | |"
                    continue
                over = f"{1000 * (_median(figure) - _median(bare)):.0f}" if figure in others else ""
                cpu, memory = 1000 * statistics.median(figure["cpu"]), max(figure["memory"])
                yield f"| {name} | {1000 * _median(figure):.0f} | {over} | {cpu:.0f} | {memory:.0f} |"
            yield ""


def _ratios(workloads: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """envsolve's median time, and what it is of each peer's."""
    yield f"| workload | cache | packages | seconds | / {' | / '.join(_PEERS)} |"
    yield f"|---|---|---:|---:|{'---:|' * len(_PEERS)}"
    for workload in workloads:
        by_tool = {figure["tool"]: figure for figure in workload["figures"]}
        own = by_tool.get("envsolve")
        if own is None:
            continue
        cells = [f"`{workload['name']}`", workload["state"], str(workload["packages"] or "")]
        if own["code"]:
            yield f"| {' | '.join(cells)} | fails |{' |' * len(_PEERS)}"
            continue
        cells.append(f"{_median(own):.2f}")
        for peer in _PEERS:
            other = by_tool.get(peer)
            cells.append("" if other is None else "fails" if other["code"] else f"{_median(own) / _median(other):.2f}")
        yield f"| {' | '.join(cells)} |"
    yield ""


def _each(workloads: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What each tool takes: seconds of the clock, seconds of the processors, peak memory."""
    yield "| workload | cache | tool | seconds | CPU | peak MiB | turns |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for workload in workloads:
        for figure in workload["figures"]:
            if not figure["code"]:
                taken = f"{_median(figure):.2f} | {statistics.median(figure['cpu']):.2f} | {max(figure['memory']):.0f}"
                turns = len(figure["wall"])
                yield f"| `{workload['name']}` | {workload['state']} | {figure['tool']} | {taken} | {turns} |"
    yield ""


def _differences(workloads: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "Versions that differ from uv's, and for conda from py-rattler's:"
    yield ""
    seen = set()
    for workload in workloads:
        found = workload["differences"]
        if found is None or workload["name"] in seen:
            continue
        seen.add(workload["name"])
        by_rule: dict[str, list[str]] = {}
        for one in found:
            words = f"{one['package']} {one['envsolve'] or '-'} ({workload['peer']}: {one['peer'] or '-'})"
            by_rule.setdefault(one["rule"] or "no rule accounts for it", []).append(words)
        said = "; ".join(f"{rule}: {', '.join(some)}" for rule, some in by_rule.items())
        yield f"- `{workload['name']}`: {said or 'none'}"


def _median(figure: Mapping[str, Any]) -> float:
    return float(statistics.median(figure["wall"]))
