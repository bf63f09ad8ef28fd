"""What stands at the interpreter's path: only a Python that is new enough gets to run a check."""

from __future__ import annotations

import math
import py_compile
import sys
import time
from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.values import ComputeCapability
from envsolve.verify import target
from envsolve.verify.runner import run_checks, run_compile_checks
from envsolve.verify.scripts import PREFIX
from envsolve.verify.target import find_target


def program(folder: Path, body: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


VERSION = """echo '{"token": "'$ENVSOLVE_TOKEN'", "version": [3, 6, 15]}' > $ENVSOLVE_RESULT"""
NO_PYTHONS = {
    "says nothing": (":", "it did not print its version"),
    "fails": ("echo cannot open shared object file >&2; exit 127", "cannot open shared object file"),
    "prints": ("cat $1", "it did not print its version"),
    "a result of another run": ('echo \'{"token": "", "version": [3, 12, 0]}\' > $ENVSOLVE_RESULT', "did not print"),
    "no version": ('echo \'{"token": "\'$ENVSOLVE_TOKEN\'", "version": 3}\' > $ENVSOLVE_RESULT', "did not print"),
    "a pipe as its result": ("mkfifo $ENVSOLVE_RESULT", "did not print"),
    "too old": (VERSION, "it is Python 3.6.15"),
}


@pytest.mark.parametrize(("body", "words"), NO_PYTHONS.values(), ids=NO_PYTHONS)
def test_what_is_no_python_runs_no_check(tmp_path: Path, body: str, words: str) -> None:
    python = program(tmp_path, body)
    with pytest.raises(UsageError, match=r"is not a Python 3\.8 or newer") as caught:
        run_compile_checks(python, [ComputeCapability(9, 0)])
    assert words in caught.value.message


def test_an_interpreter_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="is not an executable"):
        run_checks(Path("no", "such", "python"))


def test_an_interpreter_that_the_machine_cannot_run(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_bytes(b"\x7fELF of another machine")
    python.chmod(0o755)
    with pytest.raises(UsageError, match="cannot be run"):
        run_checks(python)


def test_what_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = program(tmp_path, "sleep 600")
    monkeypatch.setattr(target, "_PROBE_SECONDS", 0.3)
    start = time.monotonic()
    with pytest.raises(UsageError, match=r"did not print its version within 0\.3 s"):
        run_checks(python)
    assert time.monotonic() - start < 300


def test_a_wrapper_around_a_python_is_one(tmp_path: Path) -> None:
    python = program(tmp_path, f'exec {sys.executable} "$@"')
    assert find_target(str(python), 20.0, None).python == python


TORCH = """
from check_support import check

def where():
    import torch
    return {"detail": torch.__cached__}

@check("one", runs_on="architecture", order=1, needs=("torch",))
def one(architecture):
    return where()

@check("two", runs_on="architecture", order=2, needs=("torch",))
def two(architecture):
    return where()
"""


@pytest.mark.parametrize("compiled", [True, False])
def test_checks_share_the_byte_code_of_a_torch_without_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    source = tmp_path / "site" / "torch" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.touch()
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "both.py").write_text(TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    if compiled:
        py_compile.compile(str(source))
    report = run_compile_checks(sys.executable, [ComputeCapability(9, 0)], folder=tmp_path / "checks")
    (where,) = {check.detail for check in report.checks}
    assert where.startswith(str(tmp_path / "site")) is compiled
    assert (PREFIX in where) is not compiled
    assert len(list(source.parent.iterdir())) == 1 + compiled


def test_what_is_said_of_a_python_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(UsageError, match="No module named 'encodings'; PYTHONHOME is set to /nowhere"):
        run_checks(program(tmp_path, "echo \"No module named 'encodings'\" >&2; exit 1"))


def test_a_folder_is_no_interpreter(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not an executable") as caught:
        run_checks(tmp_path)
    assert "--prefix" in (caught.value.hint or "")


def test_what_is_said_of_a_python_whose_variables_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "junk")
    with pytest.raises(UsageError, match=r"Fatal Python error: .*PYTHONHASHSEED must be"):
        run_checks(sys.executable)


@pytest.mark.parametrize("limit", [0, -1.0, math.nan, math.inf, "60", None])
def test_a_time_limit_is_a_positive_number(limit: float) -> None:
    with pytest.raises(UsageError, match="time limit"):
        run_checks(sys.executable, time_limit=limit)
