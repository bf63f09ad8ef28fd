"""What the command prints: text, JSON, SARIF and annotations of a workflow, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envsolve.cli.main import run
from envsolve.locks.model import RULES
from tests.locks.test_read import ADA, PASCAL, POETRY, PYLOCK, written

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


def test_annotations_of_a_workflow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    path = str(written(tmp_path, "pylock.toml", PYLOCK))
    code, text = printed(capsys, path, "--target", PASCAL, "--format", "github")
    assert code == 4 and text.startswith("::error file=") and ",line=6,title=build-does-not-run::" in text
    path = str(written(tmp_path, "pylock.toml", WHOLE))
    assert printed(capsys, path, "--target", ADA, "--format", "github")[1].startswith("::notice ")


LINE = "\\n::error::pwned"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('name = "torch"', f'name = "torch{LINE}"'),
        ('version = "2.9.0"', f'version = "2.9.0{LINE}"'),
        ('{file = "torch-', f'{{file = "{LINE}torch-'),
        ("gpu = [", f'"gpu{LINE}" = ['),
        ('>=3.12,<3.13"', f'>=3.12,<3.13{LINE}"'),
        ("extra == ", f'extra == \\"{LINE}\\" or extra == '),
        ('version = "2.9.0"', 'version = "2.9.0"\nsource = {type = "legacy", url = -1}'),
        ('>=3.12,<3.13"', f'>={"9" * 5000}"'),
    ],
)
def test_no_text_of_a_lock_becomes_a_command_of_a_workflow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    assert old in POETRY
    path = written(tmp_path, "poetry.lock", POETRY.replace(old, new))
    for form in ("text", "github", "sarif"):
        for extra in ((), ("--extra", "none")):
            with pytest.raises(SystemExit):
                run(["check-lock", str(path), "--target", PASCAL, "--format", form, *extra])
            out, err = capsys.readouterr()
            assert "unexpected" not in err
            assert not any(line.startswith("::error::") for line in (out + err).splitlines())


def test_no_path_becomes_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a\n::error::b c").mkdir()
    path = str(written(tmp_path / "a\n::error::b c", "pylock.toml", PYLOCK))
    assert "\n::error::" not in printed(capsys, path, "--target", PASCAL)[1]
    (found,) = json.loads(printed(capsys, path, "--target", PASCAL, "--format", "sarif")[1])["runs"]
    place = found["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place.endswith("a%0A%3A%3Aerror%3A%3Ab%20c/pylock.toml")
