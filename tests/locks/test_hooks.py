"""The hook definition and the action, which others run from this repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.locks.test_read import ADA, PYLOCK, written

ROOT = Path(__file__).parents[2]


def read(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((ROOT / name).read_text())


def test_the_hook_takes_every_lock_that_has_a_name_of_its_own() -> None:
    (hook,) = read(".pre-commit-hooks.yaml")
    names = ("uv.lock", "a/poetry.lock", "pdm.lock", "pixi.lock", "conda-lock.yml", "pylock.toml", "pylock.gpu.toml")
    assert all(re.search(hook["files"], name) for name in names)
    assert not any(re.search(hook["files"], name) for name in ("my-uv.lock", "pyproject.toml", "yarn.lock"))
    assert hook["entry"] == "envsolve check-lock"


@pytest.mark.skipif(shutil.which("bash") is None, reason="the action is a bash script")
def test_the_script_of_the_action(tmp_path: Path) -> None:
    script = read("action.yml")["runs"]["steps"][-1]["run"]
    written(tmp_path, "pylock.toml", PYLOCK)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    given = {"LOCKS": "pylock.toml", "TARGETS": f"{ADA}\n{ADA}\n", "OPTIONS": "--python 3.12", "PATH": path}
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert done.stdout.count("::error file=pylock.toml,line=6,title=requirement-missing::") == 2
