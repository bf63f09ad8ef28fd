"""What the tables of uv, Poetry and PDM add to a project: followed, or noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.packages.projects import ask_project, load_project
from envsolve.packages.requirements import Asked

PROJECT = """\
[project]
name = "demo"
version = "1"
dependencies = ["torch"]
[project.optional-dependencies]
cpu = ["torch"]
gpu = ["torch"]
"""
UV = """\
[tool.uv]
constraint-dependencies = ["numpy<2"]
override-dependencies = ["numpy==1.26"]
exclude-newer = "2026-01-01T00:00:00Z"
conflicts = [[{ extra = "cpu" }, { extra = "gpu" }]]
dev-dependencies = ["pytest"]
[tool.uv.sources]
torch = [{ index = "gpu", extra = "gpu" }, { index = "cpu", extra = "cpu" }]
other = { git = "https://git.test/other" }
[[tool.uv.index]]
name = "gpu"
url = "https://download.pytorch.org/whl/cu124"
explicit = true
[[tool.uv.index]]
name = "cpu"
url = "https://download.pytorch.org/whl/cpu"
explicit = true
[[tool.uv.index]]
url = "https://more.test/simple"
[[tool.uv.index]]
url = "https://main.test/simple"
default = true
"""


def read(folder: Path, text: str, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> Asked:
    (folder / "pyproject.toml").write_text(PROJECT + text)
    return ask_project(load_project(folder), extras, groups)


def test_the_tables_of_uv(tmp_path: Path) -> None:
    asked = read(tmp_path, UV, ("gpu",), ("dev",))
    assert [str(one.requirement) for one in asked.constraints] == ["numpy<2"]
    assert (asked.index_urls, asked.extra_index_urls) == (("https://main.test/simple",), ("https://more.test/simple",))
    (source,) = asked.sources
    assert (source.package, source.url) == ("torch", "https://download.pytorch.org/whl/cu124")
    assert source.origin == f"{tmp_path / 'pyproject.toml'} line 19"
    assert [str(one.requirement) for one in asked.needs] == ["torch", "torch", "pytest"]
    notes = "\n".join(asked.notes)
    assert "override-dependencies is set aside" in notes and "exclude-newer is set aside" in notes
    assert "other is not taken from git https://git.test/other" in notes


def test_extras_that_uv_declares_as_conflicts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="extra cpu and extra gpu are declared as conflicts"):
        read(tmp_path, UV, ("cpu", "gpu"))


def test_the_sources_of_poetry_and_pdm(tmp_path: Path) -> None:
    asked = read(
        tmp_path,
        '[[tool.poetry.source]]\nname = "t"\nurl = "https://download.pytorch.org/whl/cu118"\npriority = "explicit"\n'
        '[[tool.pdm.source]]\nname = "pypi"\nurl = "https://main.test/simple"\n'
        '[[tool.pdm.source]]\nname = "own"\nurl = "https://own.test/simple"\n',
    )
    assert [(one.package, one.url[-5:]) for one in asked.sources] == [("torch", "cu118")]
    assert (asked.index_urls, asked.extra_index_urls) == (("https://main.test/simple",), ("https://own.test/simple",))


def test_tables_that_are_not_read_are_noted(tmp_path: Path) -> None:
    asked = read(tmp_path, '[tool.pixi.dependencies]\npytorch = "*"\n[tool.hatch.envs.gpu]\ndependencies = ["torch"]\n')
    assert sum("are not read" in note for note in asked.notes) == 2
    assert not any("hatch" in note for note in read(tmp_path, "[tool.hatch.build]\nx = 1\n").notes)


def test_a_table_of_another_shape(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not as its tool takes it"):
        read(tmp_path, "[tool.uv]\nsources = 3\n")
