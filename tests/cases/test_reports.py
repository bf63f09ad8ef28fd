"""Public bug reports, each through the public command: the right cause first, what mended it, no wrong advice."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from envsolve.cli.main import run

REPORTS = Path(__file__).with_name("reports.jsonl")


def _parameters() -> list[Any]:
    cases = [json.loads(line) for line in REPORTS.read_text(encoding="utf-8").splitlines()]
    return [
        pytest.param(
            case,
            id=case["id"],
            marks=pytest.mark.xfail(reason=case["xfail"], strict=True) if "xfail" in case else (),
        )
        for case in cases
    ]


@pytest.mark.parametrize("case", _parameters())
def test_the_diagnosis_of_a_report(case: dict[str, Any], tmp_path: Path) -> None:
    assert _faults(case["expect"]["diagnosis"], _diagnoses(case, tmp_path)) == []


def _diagnoses(case: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """What ``envsolve diagnose`` answers to the report and what is known of its machine."""
    report = folder / "report.txt"
    report.write_text(case["log"], encoding="utf-8")
    arguments = ["--log", str(report), "--format", "json"]
    for number, machine in enumerate(case["machines"]):
        path = folder / f"machine{number}.json"
        path.write_text(json.dumps(machine), encoding="utf-8")
        arguments += ["--machine", str(path)]
    if case["installed"]:
        installed = folder / "installed.json"
        installed.write_text(json.dumps(case["installed"]), encoding="utf-8")
        arguments += ["--installed", str(installed)]
    answer = folder / "answer.json"
    with pytest.raises(SystemExit) as ended:
        run(["diagnose", *arguments, "-o", str(answer), "--quiet", "--debug"])
    assert ended.value.code == 0
    found: list[dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))["diagnoses"]
    return found


def _faults(expected: dict[str, Any], diagnoses: list[dict[str, Any]]) -> list[str]:
    """What is wrong with the diagnoses, in words; nothing when they hold."""
    found = [diagnosis["cause"] for diagnosis in diagnoses]
    if not expected["causes"]:
        return [f"diagnosed {cause}, where the environment is not at fault" for cause in found]
    if not found:
        return [f"no diagnosis; it is {expected['causes']}"]
    faults = [] if found[0] in expected["causes"] else [f"first cause {found[0]}; it is {expected['causes']}"]
    # The evidence quotes the report, so a word of the report's own would count as an answer to it.
    said = json.dumps([(diagnosis["explanation"], diagnosis["remedies"]) for diagnosis in diagnoses])
    remedies = json.dumps([diagnosis["remedies"] for diagnosis in diagnoses])
    faults += [f"nothing says /{one}/" for one in expected["remedy"] if not re.search(one, said, re.IGNORECASE)]
    faults += [f"a remedy says /{one}/" for one in expected["must_not"] if re.search(one, remedies, re.IGNORECASE)]
    return faults
