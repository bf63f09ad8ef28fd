"""``envsolve verify``: what it writes where, its exit codes, and options at odds."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import envsolve
from envsolve.cli import output
from envsolve.cli.main import run
from envsolve.system.files import dump
from envsolve.verify.report import Check, Report
from tests.verify.pages import REPORT

PASSED = Report(python="/e/bin/python", checks=(Check("driver", None, "pass", 0.1, "CUDA 13.0 driver"),))
SKIPPED = replace(PASSED, checks=(Check("driver", None, "skip", 0.1, "no card"),))


def ended(*words: str) -> object:
    """The exit code of a command line."""
    with pytest.raises(SystemExit) as caught:
        run(list(words))
    return caught.value.code or 0


def saved(folder: Path, name: str, report: Report) -> str:
    path = folder / name
    path.write_text(dump(report))
    return str(path)


@pytest.mark.parametrize(
    ("now", "before", "code"),
    [
        (PASSED, None, 0),
        (REPORT, None, 4),
        (SKIPPED, None, 4),
        (PASSED, PASSED, 0),
        (PASSED, SKIPPED, 0),
        (PASSED, replace(PASSED, versions={"torch": "1"}), 0),
        (
            replace(PASSED, checks=(*PASSED.checks, replace(SKIPPED.checks[0], name="nvcc"))),
            replace(PASSED, checks=(*PASSED.checks, replace(PASSED.checks[0], name="nvcc"))),
            4,
        ),
    ],
)
def test_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], now: Report, before: Report | None, code: int
) -> None:
    words = ["verify", "--report", saved(tmp_path, "now.json", now)]
    words += ["--compare", saved(tmp_path, "before.json", before)] if before else []
    assert ended(*words) == code
    shown = capsys.readouterr().out
    assert (("have the same results" in shown) or ("not as in" in shown)) == bool(before or now.changes)


def test_a_page_beside_the_text_and_a_saved_report_shown_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, again = tmp_path / "report.html", tmp_path / "again.json"
    source = saved(tmp_path, "report.json", REPORT)
    assert ended("verify", "--report", source, "--html", str(page)) == 4
    text = capsys.readouterr()
    assert "fail  triton-kernel" in text.out
    assert f"written to {page}" in text.err
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert ended("verify", "--report", source, "--format", "json", "-o", str(again)) == 4
    assert json.loads(again.read_text()) == json.loads(Path(source).read_text())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--report", "r.json", "--prefix", "env"], "exactly one environment"),
        (["--report", "r.json", "--quick"], "--report shows a saved report"),
        (["--report", "r.json", "--plan", "p.json"], "--report shows a saved report"),
        (["--report", "missing.json"], "missing.json cannot be read: No such file or directory"),
        (["--prefix", "env", "--compile-only", "--only", "nvrtc"], "no GPU to compile for"),
        (
            ["--prefix", "env", "--compile-only", "--gpu", "9.0", "--quick"],
            "--quick applies only to checks that run on a GPU",
        ),
        (["--prefix", "env", "--html", "no/such/folder.html"], "there is no directory no/such"),
        (["--prefix", "env", "-o", "a.html", "--html", "./a.html"], "-o and --html name the same file"),
        (["--report", "r.json", "-o", "r.json"], "--report and -o name the same file"),
        (["--report", "r.json", "--compare", "r.json", "--html", "r.json"], "--report and --html name the same file"),
        (["--prefix", "env", "--plan", "p.json", "-o", "p.json"], "--plan and -o name the same file"),
        (["--prefix", "env", "--compare", "r.json", "-o", "r.json"], "--compare and -o name the same file"),
        (["--prefix", "env", "--format", "json", "--compare", "r.json", "-o", "r.json"], "env does not exist"),
        (["--prefix", "env", "-o", "/dev/null", "--html", "/dev/null"], "env does not exist"),
        (["--python", ""], "the path is empty"),
        (["--python", sys.executable, "--quick", "--only", "torch-compile"], "--quick leaves out torch-compile"),
        (["--python", sys.executable, "--only", "triton-compile"], "--compile-only has others"),
        (
            ["--python", sys.executable, "--compile-only", "--gpu", "9.0", "--only", "driver"],
            "there without --compile-only",
        ),
    ],
)
def test_options_at_odds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended("verify", *words) == 2
    assert message in capsys.readouterr().err


def test_a_place_that_cannot_be_written_to_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = saved(tmp_path, "r.json", PASSED)
    # Root may write anywhere but on a disk that is read-only.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert ended("verify", "--report", source, "-o", str(tmp_path / "new.json")) == 2
    assert f"{tmp_path} is not writable" in capsys.readouterr().err


def test_the_report_is_there_also_where_the_page_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, again = tmp_path / "r.html", tmp_path / "again.json"

    def fail(target: Path, text: str) -> None:
        if target == page:
            raise OSError(28, "No space left on device")
        target.write_text(text)

    monkeypatch.setattr(output, "replace_file", fail)
    words = ["--report", saved(tmp_path, "r.json", PASSED), "--html", str(page), "--format", "json", "-o", str(again)]
    assert ended("verify", *words) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert json.loads(again.read_text())["schema"] == "envsolve.checks/1"


def test_a_path_that_is_no_text_goes_on_a_page(tmp_path: Path) -> None:
    source = saved(tmp_path, "r.json", replace(PASSED, python="/by\udcffte/bin/python"))
    assert ended("verify", "--report", source, "--html", str(tmp_path / "r.html"), "-o", str(tmp_path / "r.txt")) == 0
    assert r"/by\udcffte/bin/python" in (tmp_path / "r.html").read_text()


def test_an_interpreter_in_this_folder_is_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, word in (("here", "mine"), ("path", "another")):
        python = tmp_path / folder / "python"
        python.parent.mkdir()
        python.write_text(f"#!/bin/sh\necho {word} >&2; exit 1\n")
        python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path / "here")
    for given, word in (("./python", "mine"), ("python", "another"), ("../here/python", "mine")):
        assert ended("verify", "--python", given, "--only", "driver") == 2
        assert f"did not print its version; {word}" in capsys.readouterr().err


def test_what_a_run_is_held_against_is_read_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\ntouch ran\n")
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(envsolve, "detect", lambda: None)
    for option in ("--plan", "--compare"):
        assert ended("verify", "--prefix", str(tmp_path), option, "none.json") == 2
    assert not (tmp_path / "ran").exists()
    assert "none.json cannot be read: No such file or directory" in capsys.readouterr().err
