"""Finding an environment's Python, and saying why there is none."""

from __future__ import annotations

import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from envsolve.environment.layout import interpreter_of
from envsolve.errors import UsageError


def executable(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_a_real_virtual_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "e", symlinks=True)
    found = interpreter_of(tmp_path / "e")
    assert found == tmp_path / "e" / "bin" / "python"
    assert found.resolve() == Path(sys.executable).resolve()


@pytest.mark.parametrize("place", ["bin/python", "bin/python3", "Scripts/python.exe", "python.exe"])
def test_every_layout(tmp_path: Path, place: str) -> None:
    expected = executable(tmp_path / place)
    assert interpreter_of(tmp_path) == expected


def test_a_relative_prefix_gives_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "bin" / "python")
    monkeypatch.chdir(tmp_path)
    assert interpreter_of(Path()) == tmp_path / "bin" / "python"


def missing(prefix: Path) -> None:
    del prefix


def a_file(prefix: Path) -> None:
    prefix.write_text("")


def empty(prefix: Path) -> None:
    prefix.mkdir()


def half_made(prefix: Path) -> None:
    prefix.mkdir()
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\n")


def conda_without_python(prefix: Path) -> None:
    (prefix / "conda-meta").mkdir(parents=True)


def base_python_gone(prefix: Path) -> None:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to(prefix / "gone")


def not_executable(prefix: Path) -> None:
    executable(prefix / "bin" / "python", 0o644)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (missing, "does not exist"),
        (a_file, "is not a directory"),
        (empty, "is not a Python environment"),
        (half_made, "incomplete virtual environment"),
        (conda_without_python, "conda environment without Python"),
        (base_python_gone, "which does not exist"),
        (not_executable, "is not executable"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    prefix = tmp_path / "e"
    make(prefix)
    with pytest.raises(UsageError, match=words) as caught:
        interpreter_of(prefix)
    assert caught.value.hint
