"""Damaged files of an environment, told by the check of files and as the cause of another check's failure."""

from __future__ import annotations

import threading
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from envsolve.environment import installed as files_module
from envsolve.errors import UsageError
from envsolve.verify import installed
from envsolve.verify.installed import check_files, check_here
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


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the checks of the ladder say: at first that one failed."""
    checks = [BUS]
    monkeypatch.setattr(installed, "run_checks", lambda *_, **__: Report(checks=tuple(checks)))
    return checks


def explained(python: Path, *, quick: bool = False, only: tuple[str, ...] = ()) -> tuple[Check, ...]:
    return check_here(python, quick=quick, only=only).checks


def altered(python: Path) -> Path:
    """A library with other bytes at the same size."""
    path = site_of(python.parent.parent) / LIBRARY
    path.write_bytes(b"\x7fELF" + b"y" * 100)
    return path


def test_sound_files_pass_and_prove_nothing_of_the_gpu(python: Path) -> None:
    report = check_here(python, only=[FILES], hashes=True)
    assert [check.detail for check in report.checks] == ["3 files of 2 packages have their sizes and hashes (0.0 GiB)"]
    assert (report.passed, report.failed) == (False, False)


def test_a_failure_without_damage_keeps_its_cause(python: Path, ran: list[Check]) -> None:
    files, failure = explained(python)
    assert (files.status, failure) == ("pass", BUS)


@pytest.mark.parametrize("content", [b"\x7fELF", b"\x7fELF" + b"y" * 100, None])
def test_a_damaged_file_is_the_cause_of_a_failure(python: Path, ran: list[Check], content: bytes | None) -> None:
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


def test_all_files_are_hashed_beside_the_checks(python: Path, ran: list[Check]) -> None:
    ran[:] = [replace(BUS, status="pass")]
    path = altered(python)
    (files, passed) = explained(python)
    assert (files.status, passed.status) == ("fail", "pass")
    assert f"{path} is not the file that was installed: it belongs to nvidia-cufft 1.0" in files.detail


def test_the_quick_checks_look_at_sizes(python: Path, ran: list[Check]) -> None:
    ran[:] = [replace(BUS, status="pass")]
    altered(python)
    assert explained(python, quick=True)[0].detail == "3 files of 2 packages have their sizes"


@pytest.mark.parametrize(("quick", "only"), [(True, ()), (False, ("torch-matmul",))])
def test_a_failure_has_all_files_hashed(python: Path, ran: list[Check], quick: bool, only: tuple[str, ...]) -> None:
    path = altered(python)
    files, failure = explained(python, quick=quick, only=only)
    assert (files.name, failure.cause) == (FILES, "lock-incomplete")
    assert str(path) in failure.detail


def test_a_disk_too_slow_for_all_hashes(python: Path, ran: list[Check], monkeypatch: pytest.MonkeyPatch) -> None:
    ran[:] = [replace(BUS, status="pass")]
    monkeypatch.setattr(installed, "_HASH_SECONDS", 0.05)
    hash_file = files_module._hash

    def hash_slowly(path: str, stopped: threading.Event) -> str | None:
        return hash_file(path, stopped) if path.endswith(".py") or stopped.wait(20) else None

    monkeypatch.setattr(files_module, "_hash", hash_slowly)
    words = "3 files of 2 packages have their sizes; 2 of them (0.0 GiB) have their hashes, and 1 (0.0 GiB) were not"
    assert explained(python)[0].detail == f"{words} hashed within 0.05 s: --hashes compares all"


def test_another_torch_first_on_the_path(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "torch").mkdir(parents=True)
    (tmp_path / "mine" / "torch" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    check = check_files(python)
    assert check.status == "fail"
    assert f"{tmp_path}/mine/torch is imported (PYTHONPATH) instead of torch 1.0" in check.detail


def test_what_runs_before_every_program_is_named(python: Path, ran: list[Check]) -> None:
    custom = site_of(python.parent.parent) / "sitecustomize.py"
    custom.touch()
    assert f"{custom} runs before every program" in explained(python)[1].detail


@pytest.mark.parametrize(("text", "named"), [("import changing\n", True), ("import_me/\n", False), ("/lib\n", False)])
def test_a_pth_file_of_no_package_that_runs_code_is_named(
    python: Path, ran: list[Check], text: str, named: bool
) -> None:
    path = site_of(python.parent.parent) / "changing.pth"
    path.write_text(text)
    assert (f"{path} runs before every program" in explained(python)[1].detail) is named


def test_a_pth_file_of_a_package_is_not_named(python: Path, ran: list[Check]) -> None:
    put(site_of(python.parent.parent), "tool", {"tool.pth": b"import os\n"})
    assert "runs before every program" not in explained(python)[1].detail


def test_a_library_of_no_package_is_named_and_is_no_failure(python: Path, ran: list[Check]) -> None:
    extra = (site_of(python.parent.parent) / LIBRARY).with_name("libcufft.so.10")
    extra.write_bytes(SOUND)
    extra.with_name("notes.txt").write_text("no library")
    files, failure = explained(python)
    assert files.status == "pass"
    assert files.detail.splitlines()[1:] == [f"{extra} belongs to no installed package"]
    assert f"{extra} belongs to no installed package" in failure.detail


def test_a_library_of_another_package_in_the_same_directory_is_not_named(python: Path) -> None:
    put(site_of(python.parent.parent), "plugin", {str(Path(LIBRARY).with_name("libplugin.so")): SOUND})
    assert "no installed package" not in check_files(python).detail


def test_beside_a_package_without_a_record_nothing_is_called_foreign(python: Path) -> None:
    site = site_of(python.parent.parent)
    (site / LIBRARY).with_name("libplugin.so").write_bytes(SOUND)
    (site / "plugin-1.0.dist-info").mkdir()
    (site / "plugin-1.0.dist-info/METADATA").write_text("Name: plugin\nVersion: 1.0\n")
    assert "no installed package" not in check_files(python).detail


def test_an_unknown_check_is_refused(python: Path) -> None:
    with pytest.raises(UsageError, match="there is no check nothing"):
        check_here(python, only=["nothing"])
