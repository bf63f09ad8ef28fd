"""``envsolve report``: everything for a bug report, and nothing that names its author."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envsolve.cli.main import run

LOG = "\n".join(
    [
        "alice@node7:~$ pip install --index-url https://alice:s3cret@pypi.corp/simple torch",
        "/home" + "/alice/x: no kernel image\n",
    ]
)


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log = tmp_path / "err.txt"
    log.write_text("padding line\n" * 4000 + LOG)
    monkeypatch.setenv("USER", "alice")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://alice:s3cret@pypi.corp/simple")
    monkeypatch.setenv("MY_TOKEN", "s3cret-value")
    return ["report", "--log", str(log)]


def reported(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        run(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_report_is_complete_small_and_redacted(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = reported(words, capsys)
    for secret in ("alice", "s3cret", "corp", "node7"):
        assert secret not in text
    assert "no kernel image" in text
    assert "the last 24000 of" in text
    assert len(text) < 65_536  # what an issue takes
    assert [part in text for part in ("## envsolve", "## machine", "## settings", "## variables", "## log")] == [
        True
    ] * 5


def test_a_report_is_json_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    value = json.loads(reported([*words, "--format", "json"], capsys))
    assert value["schema"] == "envsolve.report/1"
    assert value["machine"]["schema"] == "envsolve.machine/2"
    assert value["settings"]["extra indexes"] == ["https://(login)@(host-1)/simple"]


def test_what_cannot_be_read_is_part_of_the_report(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENVSOLVE_PRE", "perhaps")
    value = json.loads(reported([*words, "--prefix", "missing", "--format", "json"], capsys))
    assert value["environment"] == {"error": "missing does not exist"}
    assert "neither true nor false" in value["settings"]["error"]
