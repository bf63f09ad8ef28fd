"""``plan --write pyproject.toml`` on a project of Poetry: read back, and locked by real Poetry if it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from envsolve.formats import also_asked, edited, edits, next_step
from envsolve.packages.project_files import load_project
from tests.formats.test_uv_project_write import B200, CPU, PYTHON, V100, installed, planned
from tests.formats.test_uv_project_write import world as world
from tests.smallworld import World

STANDARD = """\
# The team's project.
[project]
name = "demo"
version = "1"
requires-python = ">=3.10,<3.15"
dependencies = [
    "filelock (>=1)",  # locks
    "torch (>=2.5)",  # the model
]

[tool.poetry]
package-mode = false  # no package
"""
OWN = """\
[tool.poetry]
name = "demo"
version = "1"
description = ""
authors = []
package-mode = false

[tool.poetry.dependencies]
python = ">=3.10,<3.15"
filelock = "^1.0"  # locks
torch = "^2.5"
"""
POETRY = os.environ.get("ENVSOLVE_POETRY") or shutil.which("poetry")


def poetry(world: World, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    places = {"POETRY_CACHE_DIR": str(folder / "cache"), "POETRY_VIRTUALENVS_IN_PROJECT": "true"}
    environ = {**os.environ, **places, "POETRY_VIRTUALENVS_CREATE": "true", "POETRY_KEYRING_ENABLED": "false"}
    environ.pop("VIRTUAL_ENV", None)
    command = [str(POETRY), "-n", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environ, check=False)


def of_world(world: World, text: str) -> str:
    """The project with the loopback index in the place of the default one."""
    return f'{text}\n[[tool.poetry.source]]\nname = "mirror"\nurl = "{world.default.url}"\npriority = "primary"\n'


@pytest.fixture(params=[STANDARD, OWN], ids=["standard", "own"])
def project(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def test_several_machines_get_extras_with_a_source_each(world: World, project: str, tmp_path: Path) -> None:
    plans = planned(world, CPU, V100, B200)
    text, extras = edited(project, plans, "poetry-project", "x")
    assert list(extras.values()) == ["cpu", "cu126", "cu130"]
    assert "# locks" in text and text.count('priority = "explicit"') == 3
    assert "extra != 'cpu' and extra == 'cu126' and extra != 'cu130'" in text
    # A second run changes nothing, and knows what the first moved into the extras.
    assert also_asked(text, "poetry-project") == ("torch",)
    assert edited(text, plans, "poetry-project", "x") == (text, extras)
    (tmp_path / "pyproject.toml").write_text(text)
    read = load_project(tmp_path / "pyproject.toml")
    assert set(read.extras) == {"cpu", "cu126", "cu130"}
    assert next_step("poetry-project", "cu126") == "poetry lock && poetry sync --extras cu126"


def test_one_machine_gets_a_source_and_the_others_the_default(world: World, project: str) -> None:
    text, extras = edited(project, planned(world, V100), "poetry-project", "x")
    assert extras == {}
    assert "source = 'pytorch-cu126'" in text.replace('"', "'") and "sys_platform != 'linux'" in text
    assert edited(text, planned(world, V100), "poetry-project", "x")[0] == text
    # Another machine: the source is replaced, and the one that nothing names any more is removed.
    again, _ = edited(text, planned(world, B200), "poetry-project", "x")
    assert "cu126" not in again and "pytorch-cu130" in again


def test_the_tool_of_a_file_is_found() -> None:
    path = Path("pyproject.toml")
    assert edits(path, None, OWN) == "poetry-project"
    assert edits(path, None, OWN + "[tool.uv]\n") == "uv-project"
    assert edits(path, None, "") == "uv-project"
    assert edits(path, "poetry-project", "") == "poetry-project"


def test_a_new_project_is_made(world: World) -> None:
    text, _ = edited("", planned(world, V100), "poetry-project", "demo")
    assert 'name = "demo"' in text and "torch==2.9.1" in text and f'requires-python = "=={PYTHON}.*"' in text


@pytest.mark.skipif(POETRY is None, reason="Poetry is not installed")
def test_poetry_installs_the_right_variant_on_every_machine(world: World, project: str, tmp_path: Path) -> None:
    text, extras = edited(of_world(world, project), planned(world, CPU, V100, B200), "poetry-project", "x")
    (tmp_path / "pyproject.toml").write_text(text)
    for words in (("check",), ("lock",)):
        done = poetry(world, tmp_path, *words)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    for extra in extras.values():
        done = poetry(world, tmp_path, "sync", "--no-root", "--extras", extra)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"torch-2.9.1+{extra}" in installed(tmp_path)
