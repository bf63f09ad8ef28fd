"""The bench's results as Markdown, between two marks in ``docs/performance.md``."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_BEGIN, _END = "<!-- made by `make bench` -->\n", "<!-- end of what `make bench` made -->\n"
_PEERS = ("uv", "pip", "rigsolve", "one machine")


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
    parts = [
        f"Measured on {host['date']}: {host['system']}, {host['cpus']} CPUs ({host['model']}), load {host['load']} at "
        f"the start; Python {tools['python']}, uv {tools['uv']}, pip {tools['pip']}, rigsolve {tools['rigsolve']}.\n",
        "\n".join(_starts(results["workloads"])),
        "\n".join(_ratios(results["workloads"])),
        "\n".join(_differences(results["workloads"])),
    ]
    return "\n".join(part for part in parts if part)


def write_into(document: Path, results: Mapping[str, Any]) -> None:
    """Replace what stands between the marks."""
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    document.write_text(f"{before}{_BEGIN}\n{tables(results)}\n{_END}{after}", encoding="utf-8")


def _starts(workloads: list[Mapping[str, Any]]) -> Iterator[str]:
    for workload in workloads:
        if workload["state"] == "start":
            bare, *others = workload["figures"]
            yield "| start | ms | over `python -c pass` |"
            yield "|---|---:|---:|"
            yield f"| `python -c pass` | {1000 * _median(bare):.0f} | |"
            for figure in others:
                over = _median(figure) - _median(bare)
                yield f"| {figure['tool']} | {1000 * _median(figure):.0f} | {1000 * over:.0f} |"
            yield ""


def _ratios(workloads: list[Mapping[str, Any]]) -> Iterator[str]:
    yield "| workload | cache | packages | seconds | CPU | peak MiB | / uv | / pip | / rigsolve | / one machine |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for workload in workloads:
        by_tool = {figure["tool"]: figure for figure in workload["figures"]}
        own = by_tool.get("envsolve")
        if own is None or workload["state"] == "start":
            continue
        cells = [f"`{workload['name']}`", workload["state"], str(workload["packages"] or "")]
        cells += [f"{_median(own):.2f}", f"{statistics.median(own['cpu']):.2f}", f"{max(own['memory']):.0f}"]
        for peer in _PEERS:
            other = by_tool.get(peer)
            cells.append("" if other is None else "fails" if other["code"] else f"{_median(own) / _median(other):.2f}")
        yield f"| {' | '.join(cells)} |"
    yield ""


def _differences(workloads: list[Mapping[str, Any]]) -> Iterator[str]:
    yield "Versions that differ from uv's:"
    yield ""
    seen = set()
    for workload in workloads:
        found = workload["differences"]
        if found is None or workload["name"] in seen:
            continue
        seen.add(workload["name"])
        by_rule: dict[str, list[str]] = {}
        for one in found:
            words = f"{one['package']} {one['envsolve'] or '-'} (uv: {one['uv'] or '-'})"
            by_rule.setdefault(one["rule"] or "no rule accounts for it", []).append(words)
        said = "; ".join(f"{rule}: {', '.join(some)}" for rule, some in by_rule.items())
        yield f"- `{workload['name']}`: {said or 'none'}"


def _median(figure: Mapping[str, Any]) -> float:
    return float(statistics.median(figure["wall"]))
