"""The index of a variant that a request names is followed if its builds run on the machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Asked
from tests.planning.worlds import codes, package
from tests.smallworld import World

WHEELS = "https://download.pytorch.org/whl/"
PROJECT = """
[project]
name = "demo"
version = "1"
dependencies = ["torch{specifier}"]
[[tool.uv.index]]
name = "wheels"
url = "{url}"
explicit = true
[tool.uv.sources]
torch = [{{ index = "wheels", marker = "sys_platform == 'linux'" }}]
"""


def of_project(folder: Path, variant: str, specifier: str = "") -> Asked:
    (folder / "pyproject.toml").write_text(PROJECT.format(url=WHEELS + variant, specifier=specifier))
    return read_requirements((), projects=[folder])


def of_file(folder: Path, option: str, variant: str, requirement: str) -> Asked:
    (folder / "requirements.txt").write_text(f"{option} {WHEELS}{variant}\n{requirement}\n")
    return read_requirements((), files=[folder / "requirements.txt"])


@pytest.mark.parametrize(
    ("variant", "specifier", "version", "chosen"),
    [
        ("cu128", "", "2.11.0", "cu128"),  # the newest of that index, not the newest of all
        ("cu126", "", "2.14.1", "cu126"),
        ("cu130", "", "2.14.1", "cu130"),
        ("cu128", ">=2.14", "2.14.1", "cu130"),  # that index does not have it
        ("cpu", "", "2.14.1", "cu130"),  # a CPU build does not use the GPU
    ],
)
def test_an_explicit_index(
    torch_world: World, tmp_path: Path, variant: str, specifier: str, version: str, chosen: str
) -> None:
    plan = torch_world.plan(asked=of_project(tmp_path, variant, specifier))
    torch = package(plan, "torch")
    assert (torch.version.partition("+")[0], torch.variant) == (version, chosen)
    assert ("source-differs" in codes(plan) or "source-does-not-run" in codes(plan)) == (variant != chosen)


def test_an_index_whose_builds_do_not_run(torch_world: World, tmp_path: Path) -> None:
    plan = torch_world.plan(asked=of_project(tmp_path, "cu126"), target="RTX 5090, driver 580.95.05")
    assert package(plan, "torch").variant == "cu130"
    assert "source-does-not-run" in codes(plan)


def test_companions_follow(torch_world: World, tmp_path: Path) -> None:
    asked = of_project(tmp_path, "cu126")
    both = read_requirements(["torchvision"], projects=[tmp_path])
    assert asked.sources == both.sources
    plan = torch_world.plan(asked=both)
    assert {package(plan, name).variant for name in ("torch", "torchvision")} == {"cu126"}


@pytest.mark.parametrize(
    ("option", "requirement", "version", "chosen"),
    [
        ("--extra-index-url", "torch==2.11.0", "2.11.0", "cu128"),  # pip: a local version goes before the plain one
        ("--extra-index-url", "torch", "2.14.1", "cu130"),  # pip: the newest of all indexes
    ],
)
def test_an_index_beside_the_default_one(
    torch_world: World, tmp_path: Path, option: str, requirement: str, version: str, chosen: str
) -> None:
    plan = torch_world.plan(asked=of_file(tmp_path, option, "cu128", requirement))
    torch = package(plan, "torch")
    assert (torch.version.partition("+")[0], torch.variant) == (version, chosen)


def test_a_variant_that_is_asked_for_goes_first(torch_world: World, tmp_path: Path) -> None:
    plan = torch_world.plan(asked=of_project(tmp_path, "cu128"), cuda="cu126")
    assert package(plan, "torch").variant == "cu126"


def test_where_the_indexes_are_named(tmp_path: Path) -> None:
    (one,) = of_file(tmp_path, "--index-url", "cu128", "torch").sources
    assert (one.variant, one.only, one.origin) == ("cu128", True, f"{tmp_path / 'requirements.txt'} line 1")
    (other,) = of_file(tmp_path, "--extra-index-url", "cu128/", "torch").sources
    assert (other.variant, other.only) == ("cu128", False)
    assert of_file(tmp_path, "--extra-index-url", "simple", "torch").sources == ()
