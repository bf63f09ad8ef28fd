"""Places that cannot be, on the command line and in variables: each is told, none is a failure of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.cli.main import run

TARGET = "H100, driver 580.95, python 3.12, linux-x86_64, glibc 2.35"
LONG = "a" * 300
#: Words of each command that takes a path; ``{}`` stands for it.
LINES = (
    ("builds", "torch", "--target", TARGET, "-o", "{}"),
    ("builds", "torch", "--target", TARGET, "-o", "{}/x.json"),
    ("builds", "torch", "--machine", "{}"),
    ("plan", "-r", "{}", "--target", TARGET),
    ("plan", "-c", "{}", "torch", "--target", TARGET),
    ("plan", "./{}", "--target", TARGET),
    ("plan", "{}/pyproject.toml", "--target", TARGET),
    ("plan", "torch", "--lock", "{}", "--target", TARGET),
    ("plan", "torch", "--prefix", "{}", "--target", TARGET),
    ("plan", "torch", "--installed", "{}", "--target", TARGET),
    ("install", "./pylock.{}.toml", "--prefix", "env"),
    ("verify", "--prefix", "{}"),
    ("verify", "--python", "{}"),
    ("diagnose", "--prefix", "{}"),
    ("diagnose", "--log", "{}"),
    ("check-dockerfile", "{}"),
    ("check-lock", "{}"),
    ("index", "measure", "{}"),
    ("index", "check", "--catalogue", "{}"),
    ("index", "update", "--into", "{}"),
)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize("line", LINES, ids=" ".join)
@pytest.mark.parametrize("name", [LONG, "loop"], ids=["too long", "loop"])
def test_a_path_that_cannot_be_is_told(
    line: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str], in_folder: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        run([word.replace("{}", name) for word in line])
    said = capsys.readouterr()
    if ended.value.code == 0:  # What is written goes in the place of a link to itself.
        assert "-o" in line and Path(name).is_file()
        return
    assert ended.value.code in (1, 2)
    assert said.out == ""
    assert said.err.startswith("envsolve: ") and "unforeseen" not in said.err


@pytest.mark.parametrize(
    "line", [("plan", "torch", "--machine", ""), ("detect", "-o", ""), ("plan", "-r", ""), ("verify", "--prefix", "")]
)
def test_an_empty_path_is_not_the_working_folder(
    line: tuple[str, ...], capsys: pytest.CaptureFixture[str], in_folder: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        run([*line])
    assert ended.value.code == 2
    assert "the path is empty" in capsys.readouterr().err


def test_what_no_command_foresaw_of_a_disk_is_no_failure_of_the_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, in_folder: Path
) -> None:
    monkeypatch.setenv("ENVSOLVE_CATALOGUE", f"/{LONG}")
    with pytest.raises(SystemExit) as ended:
        run(["index", "show", "driver", "580"])
    assert ended.value.code == 1
    assert "unforeseen" not in capsys.readouterr().err
