from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from envsolve.answers import program

LATER = 10**12  # nanoseconds


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that is all of a program, installed in a folder of its own."""
    folder = tmp_path / "site" / "a_small_program"
    (folder / "rules").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "rules" / "floor.py").write_text("FLOOR = 1\n")
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setattr(program, "_PACKAGES", (folder.name,))
    monkeypatch.setattr(program, "_STARTED", time.time_ns() + LATER)
    return folder


def edited(package: Path) -> None:
    (package / "rules" / "floor.py").write_text("FLOOR = 10\n")


def edited_to_the_same_size(package: Path) -> None:
    path = package / "rules" / "floor.py"
    path.write_text("FLOOR = 2\n")
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def extended(package: Path) -> None:
    (package / "rules" / "ceiling.json").write_text("{}")


def of_another_release(package: Path) -> None:
    (package.parent / f"{package.name}-2.0.dist-info").mkdir()


@pytest.mark.parametrize("change", [edited, edited_to_the_same_size, extended, of_another_release])
def test_another_program_is_another(package: Path, change: object) -> None:
    before = program.program()
    assert before is not None and before == program.program()
    assert callable(change)
    change(package)
    assert program.program() != before


def test_what_python_compiles_is_no_change(package: Path) -> None:
    before = program.program()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "floor.pyc").write_bytes(b"x")
    assert program.program() == before


def test_what_changed_since_the_start_is_nobodys(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_STARTED", package.stat().st_ctime_ns - LATER)
    assert program.program() is None


def test_what_is_not_in_folders_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_PACKAGES", ("sys", *program._PACKAGES))
    assert program.program() is None


def test_this_program_with_what_it_solves_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_STARTED", time.time_ns() + LATER)
    said = repr(program.program())
    assert sys.version in repr(sys.version) or sys.version.split()[0] in said
    for name in ("envsolve", "packaging", "resolvelib", "msgspec"):
        assert f"{os.sep}{name}'" in said


def test_the_facts_are_told_by_their_files(tmp_path: Path) -> None:
    assert program.facts(tmp_path / "none") == (str(tmp_path / "none"), ())
    assert program.facts(Path(os.devnull)) == (os.devnull, ())
    (tmp_path / "builds").mkdir()
    (tmp_path / "builds" / "torch.json").write_text("{}")
    ((path, _, size),) = program.facts(tmp_path)[1]
    assert (path, size) == (f"{os.sep}builds{os.sep}torch.json", 2)
