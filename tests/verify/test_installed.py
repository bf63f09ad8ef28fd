"""Damaged files of an environment, told by the check of files and as the cause of another check's failure."""

from __future__ import annotations

import time
import venv
from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.verify.installed import check_files, check_here, with_damage
from envsolve.verify.report import FILES, Check, Report
from tests.environment.test_installed import LIBRARY, put

BUS = Check("torch-matmul", "0: H100", "fail", 1.0, "was killed by SIGBUS", "driver-needs-reload")
SOUND = b"\x7fELF" + b"x" * 100


@pytest.fixture
def python(tmp_path: Path) -> Path:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    put(site_of(tmp_path / "env"), "nvidia-cufft", {LIBRARY: SOUND})
    put(site_of(tmp_path / "env"), "torch", {"torch/__init__.py": b"", "torch/version.py": b""})
    return tmp_path / "env" / "bin" / "python"


def site_of(prefix: Path) -> Path:
    return next(prefix.glob("lib/python3*/site-packages"))


def explained(python: Path, check: Check = BUS) -> tuple[Check, ...]:
    return with_damage(Report(checks=(check,)), [check_files(python)], python, time.monotonic()).checks


def test_sound_files_pass_and_prove_nothing_of_the_gpu(python: Path) -> None:
    report = check_here(python, only=[FILES], hashes=True)
    assert [check.detail for check in report.checks] == ["3 files of 2 packages have their sizes and hashes"]
    assert (report.passed, report.failed) == (False, False)


def test_a_failure_without_damage_keeps_its_cause(python: Path) -> None:
    files, failure = explained(python)
    assert (files.status, failure) == ("pass", BUS)


@pytest.mark.parametrize("content", [b"\x7fELF", b"\x7fELF" + b"y" * 100, None])
def test_a_damaged_file_is_the_cause_of_a_failure(python: Path, content: bytes | None) -> None:
    path = site_of(python.parent.parent) / LIBRARY
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    files, failure = explained(python)
    assert (files.name, files.status, failure.cause) == (FILES, "fail", "lock-incomplete")
    for check in (files, failure):
        assert str(path) in check.detail
        assert "nvidia-cufft 1.0" in check.detail
        assert "fix: pip install --force-reinstall --no-deps 'nvidia-cufft==1.0'" in check.detail


def test_another_torch_first_on_the_path(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "torch").mkdir(parents=True)
    (tmp_path / "mine" / "torch" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    check = check_files(python)
    assert check.status == "fail"
    assert f"{tmp_path}/mine/torch is imported (PYTHONPATH) instead of torch 1.0" in check.detail


def test_what_runs_before_every_program_is_named(python: Path) -> None:
    custom = site_of(python.parent.parent) / "sitecustomize.py"
    custom.touch()
    assert f"{custom} runs before every program" in explained(python)[1].detail


@pytest.mark.parametrize(("text", "named"), [("import changing\n", True), ("import_me/\n", False), ("/lib\n", False)])
def test_a_pth_file_of_no_package_that_runs_code_is_named(python: Path, text: str, named: bool) -> None:
    path = site_of(python.parent.parent) / "changing.pth"
    path.write_text(text)
    assert (f"{path} runs before every program" in explained(python)[1].detail) is named


def test_a_pth_file_of_a_package_is_not_named(python: Path) -> None:
    put(site_of(python.parent.parent), "tool", {"tool.pth": b"import os\n"})
    assert "runs before every program" not in explained(python)[1].detail


def test_an_unknown_check_is_refused(python: Path) -> None:
    with pytest.raises(UsageError, match="there is no check nothing"):
        check_here(python, only=["nothing"])
