"""Times ``envsolve plan`` against ``uv pip compile`` and ``pip lock`` on the same requirements, as ratios.

One run measures everything: the tools take turns (A B C, A B C, ...), each as a whole process, and each figure is the
median of its turns. Cold means an empty cache of the tool's own and a live index; warm means the cache that an untimed
turn has filled. The plan is for an H100 on Linux x86_64; uv and pip resolve for the Python that runs this script.

    python bench/plan.py [--runs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TARGET = f"H100, driver 580.95.05, python {PYTHON}, linux-x86_64, glibc 2.36"
WORKLOADS = {
    "torch": ["torch"],
    "torch torchvision torchaudio": ["torch==2.11.0", "torchvision", "torchaudio"],
    "transformers accelerate torch": ["transformers", "accelerate", "torch"],
}
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Figure:
    """Medians of one tool on one workload; seconds, and MiB of the largest process."""

    workload: str
    cache: str
    tool: str
    wall: float
    cpu: float
    memory: float
    runs: int


def commands(requirements: list[str], scratch: Path) -> dict[str, list[str]]:
    """Each tool's command line for the same question."""
    asked = scratch / "requirements.in"
    asked.write_text("\n".join(requirements) + "\n")
    uv = shutil.which("uv", path=f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}") or "uv"
    return {
        "envsolve": [str(BIN / "envsolve"), "plan", "-r", str(asked), "--target", TARGET, "--format", "json"],
        "uv": [uv, "pip", "compile", str(asked), "--python", sys.executable, "-q"],
        "pip": [sys.executable, "-m", "pip", "lock", "-q", "-r", str(asked), "-o", str(scratch / "pylock.toml")],
    }


def caches(scratch: Path) -> dict[str, str]:
    """Environment variables that give every tool a cache folder of its own."""
    names = {"ENVSOLVE_CACHE_DIR": "envsolve", "UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip"}
    return {variable: str(scratch / f"cache-{tool}") for variable, tool in names.items()}


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Wall and CPU seconds, and peak MiB, of one process and its children.

    Raises:
        SystemExit: The command failed: a ratio of failures would say nothing.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=said)
        # wait4 accounts for this very child; RUSAGE_CHILDREN would keep the largest of all children so far.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{said.read().decode(errors='replace')[-2000:]}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure(workload: str, requirements: list[str], cold: bool, runs: int) -> list[Figure]:
    """The tools in turn, ``runs`` times."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        tools = commands(requirements, scratch)
        environment = {**os.environ, **caches(scratch)}
        samples: dict[str, list[tuple[float, float, float]]] = {tool: [] for tool in tools}
        if not cold:
            for command in tools.values():
                timed(command, environment)
        for _ in range(runs):
            for tool, command in tools.items():
                if cold:
                    shutil.rmtree(scratch / f"cache-{tool}", ignore_errors=True)
                samples[tool].append(timed(command, environment))
    figures = []
    for tool, taken in samples.items():
        wall, cpu, memory = (statistics.median(column) for column in zip(*taken, strict=True))
        figures.append(Figure(workload, "cold" if cold else "warm", tool, wall, cpu, memory, runs))
    return figures


def table(figures: list[Figure]) -> str:
    """A Markdown table: envsolve's seconds, and its ratio to each peer."""
    rows = ["| workload | cache | envsolve (s) | / uv | / pip |", "|---|---|---|---|---|"]
    groups: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.workload, figure.cache), {})[figure.tool] = figure
    for (workload, cache), by_tool in groups.items():
        own = by_tool["envsolve"].wall
        ratios = " | ".join(f"{own / by_tool[peer].wall:.2f}" for peer in ("uv", "pip"))
        rows.append(f"| `{workload}` | {cache} | {own:.2f} | {ratios} |")
    return "\n".join(rows)


def main() -> None:
    """Measure every workload, cold and warm, and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--json", type=Path, help="keep the raw figures")
    given = options.parse_args()
    figures = []
    for workload, requirements in WORKLOADS.items():
        for cold in (True, False):
            figures += measure(workload, requirements, cold, given.runs)
            print(f"measured {workload}, {'cold' if cold else 'warm'}", file=sys.stderr)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, medians of {given.runs}\n")
    print(table(figures))
    if given.json:
        given.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


if __name__ == "__main__":
    main()
