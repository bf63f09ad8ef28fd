"""A package whose list of files is damaged is named, with a command that works without the list."""

from __future__ import annotations

from pathlib import Path

import pytest

import envsolve
from tests.environment.prefixes import Prefix


@pytest.mark.parametrize("damage", [None, "", "torch/__init__.py,sha256=AA"])
def test_a_damaged_record_is_named_with_a_command_that_pip_can_run(tmp_path: Path, damage: str | None) -> None:
    prefix = Prefix(tmp_path / "env")
    prefix.add("pip", "26.0", {"pip/__init__.py": ""})
    info = prefix.add("torch", "2.9.0", {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.9.0'\n"})
    before = envsolve.diagnose(prefix=prefix.folder).diagnoses
    assert not [one for one in before if "installed-files list" in one.explanation]
    (info / "RECORD").unlink()
    if damage is not None:
        (info / "RECORD").write_text(damage)
    found = [
        one for one in envsolve.diagnose(prefix=prefix.folder).diagnoses if "installed-files list" in one.explanation
    ]
    assert [one.cause for one in found] == ["lock-incomplete"]
    assert found[0].evidence[0].startswith(f"{info}/RECORD ")
    # pip ends --force-reinstall with "Cannot uninstall torch 2.9.0, RECORD file not found."
    command = found[0].remedies[0].command
    assert command is not None and "--ignore-installed --no-deps torch==2.9.0" in command
