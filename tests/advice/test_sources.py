"""A project that names the index of a variant, planned for machines that this variant does not run on."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.markers import Marker

from envsolve.advice.torch import about_environments, about_sources
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.known import describe_target
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Source
from envsolve.rules.nvidia import Facts
from envsolve.rules.platform import environments_of
from envsolve.solve.family import Family


@pytest.fixture(scope="module")
def family() -> Family:
    catalogue = Catalogue()
    machine = describe_target("RTX 5090, driver 580.95, python 3.12, linux-x86_64, glibc 2.35", catalogue)
    return Family(catalogue, Facts.of(catalogue), (machine,), "3.12")


def test_a_variant_without_code_for_the_gpu(family: Family) -> None:
    source = Source("torch", "https://download.pytorch.org/whl/cu124", f"{Path('pyproject.toml')} line 19")
    (found,) = about_sources((source,), "cu130", family)
    assert found.code == "source-does-not-run"
    assert (
        "pyproject.toml line 19: the project takes torch from" in found.message
        and "no code for cc 12.0" in found.message
    )
    assert found.remedy == 'change the line to: url = "https://download.pytorch.org/whl/cu130"'


def test_the_extra_of_the_project_whose_index_runs_is_proposed(tmp_path: Path) -> None:
    """To write the index of cu126 in place of that of the CPU would break the extra for CPUs."""
    wheels = "https://download.pytorch.org/whl/"
    entries = [f'{{ index = "{name}", extra = "{name}" }}' for name in ("cpu", "cu118", "cu126")]
    tables = [
        f'[[tool.uv.index]]\nname = "{n}"\nurl = "{wheels}{n}"\nexplicit = true' for n in ("cpu", "cu118", "cu126")
    ]
    extras = "\n".join(f'{name} = ["torch"]' for name in ("cpu", "cu118", "cu126"))
    head = f'[project]\nname = "demo"\nversion = "1"\n[project.optional-dependencies]\n{extras}\n'
    text = f"{head}[tool.uv.sources]\ntorch = [{', '.join(entries)}]\n" + "\n".join(tables)
    (tmp_path / "pyproject.toml").write_text(text)
    catalogue = Catalogue()
    for target, extra, remedy in (
        ("A100, driver 535", "cpu", "choose --extra cu126 instead, whose cu126 runs there"),
        ("V100, driver 470", "cu126", "choose --extra cu118 instead, whose cu118 runs there"),
        ("RTX 5090, driver 580.95", "cu126", 'change the line to: url = "https://download.pytorch.org/whl/cu130"'),
    ):
        machine = describe_target(f"{target}, python 3.12, linux-x86_64, glibc 2.35", catalogue)
        family = Family(catalogue, Facts.of(catalogue), (machine,), "3.12")
        asked = read_requirements((), projects=[tmp_path], extras=[extra])
        (found,) = about_sources(asked.sources, "cu130", family)
        assert found.remedy == remedy


def test_a_variant_that_runs_too_and_one_that_is_taken(family: Family) -> None:
    def codes(variant: str) -> list[str]:
        source = Source("torch", f"https://download.pytorch.org/whl/{variant}", "pyproject.toml")
        return [one.code for one in about_sources((source,), "cu130", family)]

    assert codes("cu128") == ["source-differs"]
    assert codes("cu130") == []


def test_an_index_that_the_project_takes_on_another_system(family: Family) -> None:
    for marker, count in (("sys_platform == 'linux'", 1), ("sys_platform == 'win32'", 0)):
        source = Source("torch", "https://download.pytorch.org/whl/cpu", "pyproject.toml", Marker(marker))
        assert len(list(about_sources((source,), "cu130", family))) == count


def test_a_machine_that_no_declared_environment_covers(family: Family) -> None:
    machines = environments_of(family.machines, "3.12")
    windows = (Marker("sys_platform == 'win32'"), "pyproject.toml [tool.uv] environments")
    (found,) = about_environments((windows,), machines)
    assert found.code == "environment-not-locked" and "no marker matches linux-x86_64" in found.message
    assert not list(about_environments((windows, (Marker("sys_platform == 'linux'"), "")), machines))
    assert not list(about_environments((), machines))
