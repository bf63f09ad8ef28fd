"""Times what one plan loads of the catalogue, each time in a fresh process: imports by themselves, then the facts.

The facts are those that a plan for ``torch torchvision`` on a described machine reads: builds of both and of triton,
toolkits, floors, drivers, cards, architectures, Triton releases, the family and the indexes. Medians of wall and of CPU
time; on a computer that other programs share, CPU time is the steadier one.

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

PARTS = ("imports", "torch and triton", "torchvision", "the rest")
CHILD = """
import json, time
def now(): return time.perf_counter(), time.process_time()
marks = [now()]
import platformdirs  # which every plan imports, for the cache of the indexes
from envsolve.catalogue.load import Catalogue
marks.append(now())
catalogue = Catalogue()
catalogue.builds("torch"), catalogue.builds("triton")
marks.append(now())
catalogue.builds("torchvision")
marks.append(now())
catalogue.toolkits, catalogue.floors, catalogue.drivers, catalogue.gpus, catalogue.architectures
catalogue.tritons, catalogue.family, catalogue.indexes
marks.append(now())
print(json.dumps([[b - a for a, b in zip(*pair)] for pair in zip(marks, marks[1:])]))
"""


def sample() -> list[list[float]]:
    """Wall and CPU seconds of each part, in one fresh process."""
    done = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
    result: list[list[float]] = json.loads(done.stdout)
    return result


def main() -> None:
    """Measure and print a Markdown table in milliseconds."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=21)
    runs = options.parse_args().runs
    sample()  # byte code and the file cache
    samples = [sample() for _ in range(runs)]
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, medians of {runs}\n")
    print("| part | wall (ms) | CPU (ms) |\n|---|---:|---:|")
    for number, part in enumerate(PARTS):
        wall, cpu = (statistics.median(s[number][clock] for s in samples) * 1e3 for clock in (0, 1))
        print(f"| {part} | {wall:.1f} | {cpu:.1f} |")
    wall, cpu = (statistics.median(sum(part[clock] for part in s[1:]) for s in samples) * 1e3 for clock in (0, 1))
    print(f"| all facts of the plan | {wall:.1f} | {cpu:.1f} |")


if __name__ == "__main__":
    main()
