"""A project that names the index of a variant, planned for machines that this variant does not run on."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.markers import Marker

from envsolve.advice.torch import about_environments, about_sources
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.known import describe_target
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
    assert "pyproject.toml line 19: torch comes from" in found.message and "no code for cc 12.0" in found.message
    assert found.remedy == 'write there: url = "https://download.pytorch.org/whl/cu130"'


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
    assert found.code == "environment-not-locked" and "no marker there matches linux-x86_64" in found.message
    assert not list(about_environments((windows, (Marker("sys_platform == 'linux'"), "")), machines))
    assert not list(about_environments((), machines))
