"""What the command prints: text, JSON, SARIF and annotations of a workflow, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envsolve.cli.main import run
from envsolve.locks.model import RULES
from tests.locks.test_read import ADA, PASCAL, PYLOCK, written

WHOLE = PYLOCK.replace("torch", "numpy").replace("2.9.0", "2.3.4")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        run(["check-lock", *words])
    return int(ended.value.code or 0), capsys.readouterr().out


def test_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, "pylock.toml", PYLOCK))
    code, text = printed(capsys, path, "--target", ADA, "--target", PASCAL)
    assert code == 4 and "incomplete" in text and "does not run, because" in text
    path = str(written(tmp_path, "pylock.toml", WHOLE))
    assert printed(capsys, path, "--target", ADA)[0] == 0


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, "pylock.toml", PYLOCK))
    read = json.loads(printed(capsys, path, "--target", PASCAL, "--format", "json")[1])
    assert read["schema"] == "envsolve.lockcheck/1"
    (machine,) = read["locks"][0]["machines"]
    assert machine["status"] == "does not run" and machine["findings"][0]["line"] == 6


def test_sarif(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, "pylock.toml", PYLOCK))
    (found,) = json.loads(printed(capsys, path, "--target", PASCAL, "--format", "sarif")[1])["runs"]
    result = found["results"][0]
    assert (result["ruleId"], result["level"]) == ("build-does-not-run", "error")
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 6}
    assert {one["ruleId"] for one in found["results"]} <= {rule["id"] for rule in found["tool"]["driver"]["rules"]}
    assert len(found["tool"]["driver"]["rules"]) == len(RULES)


def test_annotations_of_a_workflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, "pylock.toml", PYLOCK))
    code, text = printed(capsys, path, "--target", PASCAL, "--format", "github")
    assert code == 4 and text.startswith("::error file=") and ",line=6,title=build-does-not-run::" in text
    path = str(written(tmp_path, "pylock.toml", WHOLE))
    assert printed(capsys, path, "--target", ADA, "--format", "github")[1].startswith("::notice ")
