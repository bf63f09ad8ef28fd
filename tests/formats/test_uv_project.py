"""The tables for a uv project, put before real uv over a loopback index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from msgspec.structs import replace

from envsolve.formats import render
from envsolve.planning.plan import Plan
from tests.formats.test_installers import UV, plan

__all__ = ["plan"]


def test_uv_locks_the_builds_of_the_plan(plan: Plan, tmp_path: Path) -> None:
    here = replace(plan, python="{}.{}".format(*sys.version_info[:2]))
    text = render(here, "uv-project").replace("[project]\n", '[project]\nname = "demo"\nversion = "1"\n')
    (tmp_path / "pyproject.toml").write_text(text)
    # Indexes in the variables of uv would count before those of the project.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    environ["UV_CACHE_DIR"] = str(tmp_path / "cache")
    for words in (["lock"], ["sync", "--dry-run", "--frozen"]):
        command = [UV, *words, "--python", sys.executable, "--project", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
        assert done.returncode == 0, f"{text}\n{done.stderr}"
    locked = (tmp_path / "uv.lock").read_text()
    assert 'name = "es-torch"\nversion = "2.9.0+cu126"' in locked
    assert 'name = "es-lock"\nversion = "1.0"' in locked
