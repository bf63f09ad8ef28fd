"""Times what one plan loads of the catalogue, each time in a fresh process: imports by themselves, then the facts.

The facts are those that ``envsolve plan`` reads for a described machine, in its order: cards, drivers, toolkits, Triton
releases and the rest, then every build of the packages asked for, on all indexes, with its files, hashes and
dependencies. A real plan is asked first whether it reads just these. Medians of wall and of CPU time, and the lowest
CPU time; on a computer that other programs share, the last is the steadiest.

    python bench/catalogue.py [--runs N]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys

PLANS = ("torch", "torch torchvision torchaudio")
PARTS = ("imports", "facts of machines and packages", "builds")
OF_MACHINES = (
    *("gpus", "drivers", "tritons", "toolkits", "floors", "architectures", "indexes", "family"),
    *("compilers", "source_projects", "shared_files", "compiled_against"),
)
CHILD = """
import json, sys, time
def now(): return time.perf_counter(), time.process_time()
marks = [now()]
import platformdirs  # which every plan imports, for the cache of the indexes
from envsolve.facts.catalogue import Catalogue
marks.append(now())
catalogue = Catalogue()
for name in {of_machines!r}: getattr(catalogue, name)
marks.append(now())
for package in (*sys.argv[1:], "triton"): catalogue.builds(package)
marks.append(now())
print(json.dumps([[b - a for a, b in zip(*pair)] for pair in zip(marks, marks[1:])]))
"""
READ_BY_A_PLAN = """
import sys
import envsolve
from envsolve.facts.catalogue import Catalogue
seen, loaded = [], Catalogue._loaded
Catalogue._loaded = lambda self, file, kind: (seen.append(file), loaded(self, file, kind))[1]
machine = envsolve.describe_target("RTX 4090, driver 550.54, linux-x86_64, glibc 2.35")
envsolve.plan(envsolve.Request(sys.argv[1:], python="3.12"), [machine])
print("\\n".join(dict.fromkeys(seen)))
"""


def child(program: str, plan: str) -> str:
    """What a program prints, run by itself on the packages of a plan."""
    command = [sys.executable, "-c", program, *plan.split()]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def sample(plan: str) -> list[list[float]]:
    """Wall and CPU seconds of each part, in one fresh process."""
    result: list[list[float]] = json.loads(child(CHILD.format(of_machines=OF_MACHINES), plan))
    return result


def check(plan: str) -> None:
    """Say which files a real plan reads that are not timed here, or the other way round."""
    read = {file.rsplit("/", 1)[-1] for file in child(READ_BY_A_PLAN, plan).split()}
    if wrong := read ^ {*OF_MACHINES, *plan.split(), "triton"}:
        raise SystemExit(f"what a plan for {plan} reads is not what is timed: {', '.join(sorted(wrong))}")


def row(part: str, times: list[list[float]]) -> str:
    """One row of the table, of wall and CPU seconds."""
    wall, cpu = ([1e3 * seconds for seconds in clock] for clock in zip(*times, strict=True))
    return f"| {part} | {statistics.median(wall):.1f} | {statistics.median(cpu):.1f} | {min(cpu):.1f} |"


def main() -> None:
    """Measure and print Markdown tables in milliseconds."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=21)
    runs = options.parse_args().runs
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, medians of {runs}")
    for plan in PLANS:
        check(plan)
        sample(plan)  # byte code and the file cache
        samples = [sample(plan) for _ in range(runs)]
        print(f"\n| `{plan}` | wall (ms) | CPU (ms) | lowest CPU (ms) |\n|---|---:|---:|---:|")
        for number, part in enumerate(PARTS):
            print(row(part, [s[number] for s in samples]))
        print(row("all facts of the plan", [[sum(clock) for clock in zip(*s[1:], strict=True)] for s in samples]))


if __name__ == "__main__":
    main()
