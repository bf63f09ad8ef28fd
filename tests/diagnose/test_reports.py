"""Short reports of every kind: what stands first among the diagnoses, and what every diagnosis owes its reader."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import envsolve
from tests.diagnose.reports import REPORTS, diagnosed

HERE = Path(__file__).parent
CODES = set(re.findall(r"^\| `([a-z-]+)` \|", (HERE.parents[1] / "docs" / "causes.md").read_text(), re.MULTILINE))
#: What must never be advised, whatever the report: it hides the fault, or breaks more than it mends.
NEVER = (
    r"ln -s[^\"\n]*libcudart",
    r"(?:upgrade|install)[^.]{0,20}\bglibc\b",
    r"-allow-unsupported-compiler",
    r"pip install (?:-U |--upgrade )?torch --extra-index-url",
    r"TORCH_DONT_CHECK_COMPILER_ABI",
    r"--trusted-host",
)


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: r["name"])
def test_the_cause_stands_first_and_is_told_whole(report: dict[str, Any]) -> None:
    found, _ = diagnosed(report["name"])
    causes = [diagnosis.cause for diagnosis in found.diagnoses]
    if not report["causes"]:
        assert causes == []
        assert found.next_steps
        return
    assert causes[:1] and causes[0] in report["causes"], causes
    assert len(set(causes)) == len(causes)
    assert not found.next_steps
    for diagnosis in found.diagnoses:
        assert diagnosis.cause in CODES
        assert 0 < diagnosis.confidence < 1
        assert diagnosis.certainty in ("certain", "likely", "possible")
        assert diagnosis.evidence and all(diagnosis.evidence)
        assert diagnosis.remedies
        assert 2 <= len(re.findall(r"[.!?](?= |$)", diagnosis.explanation)) <= 5, diagnosis.explanation
        assert "None" not in diagnosis.explanation
        for remedy in diagnosis.remedies:
            assert remedy.text[0].isupper() and remedy.text.endswith((".", ")")), remedy.text
            words = f"{remedy.text}\n{remedy.command or ''}"
            assert not [pattern for pattern in NEVER if re.search(pattern, words)], words
            assert "None" not in words


def test_every_code_has_a_report() -> None:
    shown = {cause for report in REPORTS for cause in report["causes"]}
    assert CODES - shown == set()


def test_a_diagnosis_is_certain_only_if_nothing_else_explains_the_report() -> None:
    kernel = "CUDA error: no kernel image is available for execution on the device"
    machine = envsolve.describe_target("GTX 1080, driver 560.35.03")
    alone = envsolve.diagnose(kernel, [machine], installed={"torch": "2.8.0+cu128"})
    assert [d.certainty for d in alone.diagnoses] == ["certain"]
    words = envsolve.diagnose(kernel, None)
    assert words.diagnoses[0].certainty == "likely"
    both = "AssertionError: Torch not compiled with CUDA enabled\noperator torchvision::nms does not exist"
    found = envsolve.diagnose(both, [machine], installed={"torch": "2.8.0+cpu", "torchvision": "0.22.0+cpu"})
    assert "certain" not in {d.certainty for d in found.diagnoses}


def test_a_cpu_torch_beside_companions_for_cuda_is_one_cause_and_one_fix() -> None:
    installed = {"torch": "2.8.0+cpu", "torchvision": "0.23.0+cu128"}
    gpu, none = (
        envsolve.describe_target(f"{gpu}, linux-x86_64, python 3.12") for gpu in ("H100, driver 580", "no gpu")
    )
    found = envsolve.diagnose("", [gpu], installed=installed)
    assert [one.cause for one in found.diagnoses] == ["cpu-build"]
    assert "torch==2.8.0+cu" in (found.diagnoses[0].remedies[0].command or "")
    assert [one.cause for one in envsolve.diagnose("", [none], installed=installed).diagnoses] == ["mixed-flavours"]
