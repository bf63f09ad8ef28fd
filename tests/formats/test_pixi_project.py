"""``plan --write pixi.toml``: features, indexes and environments, read back as pixi reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.formats import also_asked, edited, edits, next_step
from envsolve.system.files import parse_toml
from tests.formats.test_uv_project_write import B200, CPU, PYTHON, V100, planned
from tests.formats.test_uv_project_write import world as world
from tests.smallworld import World

WORKSPACE = """\
# The team's workspace.
[workspace]
name = "demo"
channels = ["conda-forge"]
platforms = ["osx-arm64"]

[tasks]
train = "python train.py"  # long

[dependencies]
filelock = ">=1"

[pypi-dependencies]
torch = { version = ">=2.5", extras = ["optree"] }
"""


def test_several_machines_get_a_feature_and_an_environment_each(world: World) -> None:
    plans = planned(world, CPU, V100, B200)
    text, extras = edited(WORKSPACE, plans, "pixi-project", "x")
    assert list(extras.values()) == ["cpu", "cu126", "cu130"]
    assert "# The team's workspace." in text and "# long" in text
    read = parse_toml(text, Path("pixi.toml"))
    assert read["workspace"]["platforms"] == ["osx-arm64", "linux-64"]
    assert read["environments"] == {name: [name] for name in extras.values()}
    assert "system-requirements" not in read["feature"]["cpu"]
    assert read["feature"]["cu126"]["system-requirements"] == {"cuda": "12.0"}
    assert read["feature"]["cu130"]["system-requirements"] == {"cuda": "13.0"}
    torch = read["feature"]["cu126"]["pypi-dependencies"]["torch"]
    assert torch["version"] == "==2.9.1+cu126" and torch["index"].endswith("/whl/cu126/")
    assert "pypi-dependencies" not in read
    assert read["dependencies"]["python"] == f"{PYTHON}.*"
    # A second run changes nothing, and knows what the first moved into the features.
    assert also_asked(text, "pixi-project") == ("torch",)
    assert edited(text, plans, "pixi-project", "x") == (text, extras)
    assert next_step("pixi-project", "cu126") == "pixi install --environment cu126"


def test_one_machine_changes_the_wheel_in_its_place(world: World) -> None:
    text, extras = edited(WORKSPACE, planned(world, V100), "pixi-project", "x")
    read = parse_toml(text, Path("pixi.toml"))
    torch = read["pypi-dependencies"]["torch"]
    assert extras == {} and torch["version"] == "==2.9.1+cu126" and torch["extras"] == ["optree"]
    assert read["system-requirements"] == {"cuda": "12.0"}


def test_the_tables_of_a_pyproject_are_changed(world: World) -> None:
    project = (
        '[project]\nname = "demo"\nversion = "1"\n\n[tool.pixi.workspace]\nchannels = ["conda-forge"]\nplatforms = []\n'
    )
    assert edits(Path("pyproject.toml"), None, project) == "pixi-project"
    text, _ = edited(project, planned(world, V100), "pixi-project", "x")
    assert "torch" in parse_toml(text, Path("pyproject.toml"))["tool"]["pixi"]["pypi-dependencies"]


def test_a_new_workspace_is_made(world: World) -> None:
    text, _ = edited("", planned(world, V100), "pixi-project", "demo")
    read = parse_toml(text, Path("pixi.toml"))
    assert read["workspace"] == {"name": "demo", "channels": ["conda-forge"], "platforms": ["linux-64"]}
    assert read["pypi-dependencies"]["torch"]["version"] == "==2.9.1+cu126"


def test_a_workspace_with_torch_from_conda_is_left(world: World) -> None:
    text = WORKSPACE.replace('filelock = ">=1"', 'pytorch-gpu = "*"')
    with pytest.raises(UsageError, match="takes pytorch-gpu from conda"):
        edited(text, planned(world, V100), "pixi-project", "x")
