"""How often the first diagnosis is right, by what it stands on and by the word that says how sure it is.

The first are the numbers of ``index_data/precisions.json``, the second those of the table in ``docs/diagnose.md``.

    python bench/diagnosis.py CASES...

A word is calibrated only by reports that nobody looked at while signatures and rules were written.

``CASES`` are files of cases (JSON lines of ``envsolve.case/1``) or of short reports (``tests/diagnose/reports.json``).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import envsolve
from envsolve.diagnose.model import Finding, Grounds
from envsolve.diagnose.reason import certainty, in_order, weighed
from envsolve.diagnose.report.packages import read_installed
from envsolve.diagnose.report.read import read_report
from envsolve.diagnose.scene import scene_of
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine


def main() -> None:
    """Print right and all, by grounds, and every report whose first diagnosis is wrong."""
    catalogue = Catalogue()
    right: Counter[Grounds] = Counter()
    every: Counter[Grounds] = Counter()
    sure: Counter[tuple[str, bool]] = Counter()
    silent = [0, 0]
    for name, log, machines, installed, causes in (row for path in sys.argv[1:] for row in rows(Path(path))):
        first, word = first_finding(log, machines, installed, catalogue)
        sure[word, bool(first and first.cause in causes)] += bool(first or causes)
        if not causes:
            silent[0] += first is None
            silent[1] += 1
            if first is not None:
                every[first.grounds] += 1
                print(f"{name}: {first.cause} ({first.grounds.value}), where the environment is not at fault")
        elif first is None:
            print(f"{name}: none, not {' or '.join(causes)}")
        else:
            every[first.grounds] += 1
            right[first.grounds] += first.cause in causes
            if first.cause not in causes:
                print(f"{name}: {first.cause} ({first.grounds.value}), not {' or '.join(causes)}")
    for grounds in Grounds:
        print(f"{grounds.value:<10} {right[grounds]} of {every[grounds]}")
    print(f"{'silence':<10} {silent[0]} of {silent[1]}")
    for word in ("certain", "likely", "possible", "no cause"):
        print(f"{word:<10} {sure[word, True]} of {sure[word, True] + sure[word, False]}")


def first_finding(
    log: str, machines: tuple[Machine, ...], installed: Mapping[str, str] | None, catalogue: Catalogue
) -> tuple[Finding | None, str]:
    """What would be printed first, and how sure it is."""
    given = read_installed(json.dumps(installed)) if installed else None
    report = read_report(log, catalogue, machine=machines[0] if machines else None, installed=given)
    scene = scene_of(report, machines[1:], catalogue)
    found = in_order([answer for answer in weighed(scene) if isinstance(answer, Finding)], scene)
    return (found[0], certainty(found[0], found)) if found else (None, "no cause")


Row = tuple[str, str, tuple[Machine, ...], Mapping[str, str] | None, list[str]]


def rows(path: Path) -> Iterator[Row]:
    """The reports of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        yield from (row for line in text.splitlines() if line.strip() for row in case(json.loads(line)))
        return
    for report in json.loads(text):
        machines = (envsolve.describe_target(report["target"]),) if "target" in report else ()
        yield report["name"], report["log"], machines, report.get("installed"), report["causes"]


def case(found: dict[str, Any]) -> Iterator[Row]:
    """A case that expects a diagnosis."""
    expected = found["expect"].get("diagnosis")
    if expected:
        with TemporaryDirectory() as scratch:
            for number, machine in enumerate(found["machines"]):
                (Path(scratch) / f"{number}.json").write_text(json.dumps(machine))
            machines = envsolve.load_machines(scratch) if found["machines"] else ()
        yield found["id"], found["log"] or "", machines, found.get("installed"), expected["causes"]


if __name__ == "__main__":
    main()
