"""The Python of a plan, if neither the request nor the machine names one: pinned releases need wheels for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.facts.catalogue import Catalogue
from envsolve.machine.completed import machine_from_target
from envsolve.machine.model import Machine
from envsolve.machine.target import parse_target
from envsolve.packages.requirement_files import read_requirements
from envsolve.planning.plan import Plan
from tests.planning.worlds import chosen, codes
from tests.smallworld import NEW, World

LINUX = "manylinux_2_17_x86_64"
OLD_TAGS = "cp311-cp311-" + LINUX
NEW_TAGS = "cp312-cp312-" + LINUX


@pytest.fixture
def free() -> Machine:
    """A machine of which the Python is not known."""
    text = "H100, driver 580.95.05, linux-x86_64, glibc 2.35"
    return machine_from_target(parse_target(text), Catalogue())


@pytest.fixture
def compiled(world: World) -> World:
    """A package whose release 1.0 has wheels up to Python 3.11, and 2.0 for 3.12, with sdists of both."""
    world.build("torch", "2.14.0", "cu128", code=NEW, pythons=("cp311", "cp312"))
    world.default.wheel("arrays", "1.0", tags=OLD_TAGS)
    world.default.wheel("arrays", "2.0", tags=NEW_TAGS)
    for version in ("1.0", "2.0"):
        world.default.sdist("arrays", version)
    return world


@pytest.mark.parametrize(
    ("asked", "python"),
    [
        ("arrays==1.0", "3.11"),
        ("arrays<2", "3.11"),
        ("arrays~=1.0", "3.11"),
        ("arrays==2.0", "3.12"),
        ("arrays>=1.0", "3.12"),
        ("arrays", "3.12"),
        ("arrays<3", "3.12"),
    ],
)
def test_a_bounded_release_is_taken_as_a_wheel(compiled: World, free: Machine, asked: str, python: str) -> None:
    plan = compiled.plan_for([free], "torch", asked)
    assert (plan.status, plan.python) == ("ok", python)
    assert "source-build" not in codes(plan)


def test_a_constraint_counts_for_what_is_asked_for(compiled: World, free: Machine, tmp_path: Path) -> None:
    (tmp_path / "limits.txt").write_text("arrays==1.0\nnothing==1\n")
    asked = read_requirements(["torch", "arrays"], constraints=[tmp_path / "limits.txt"])
    assert compiled.plan_for([free], asked=asked).python == "3.11"


@pytest.mark.parametrize(
    ("asked", "version"),
    [("arrays", "1.0"), ("arrays>=1.0", "1.0"), ("arrays>=2.0", "2.0"), ("script", "2.0"), ("plain", "2.0")],
)
def test_an_sdist_from_after_the_python_comes_after_an_older_wheel(world: World, asked: str, version: str) -> None:
    """The sdists of OpenCV 4.7 and later allow Python 3.6, and only their wheels say that they are for 3.7."""
    world.default.wheel("arrays", "1.0", tags=OLD_TAGS)
    world.default.wheel("arrays", "2.0", tags=NEW_TAGS)
    world.default.wheel("script", "2.0", tags=NEW_TAGS)
    world.default.wheel("plain", "1.0", tags=OLD_TAGS)
    for name in ("arrays", "script", "plain"):
        for one in ("1.0", "2.0"):
            if (name, one) != ("plain", "1.0"):
                world.default.sdist(name, one)
    (chosen,) = world.plan(asked, target="H100, driver 580, python 3.11").packages
    assert chosen.version == version


@pytest.mark.parametrize(
    ("libc", "version"), [("glibc 2.17", "1.0"), ("glibc 2.34", "2.0"), ("glibc 2.12", "2.0"), ("musl 1.2", "2.0")]
)
def test_an_sdist_whose_wheel_needs_a_newer_libc_comes_after_an_older_wheel(
    world: World, libc: str, version: str
) -> None:
    """On CentOS 7 the sdists of the newest releases take compilers that it does not have."""
    world.default.wheel("arrays", "1.0", tags=NEW_TAGS)
    world.default.wheel("arrays", "2.0", tags="cp312-cp312-manylinux_2_34_x86_64")
    world.default.sdist("arrays", "2.0")
    (chosen,) = world.plan("arrays", target=f"H100, driver 580, {libc}").packages
    assert (chosen.version, chosen.kind) == (version, "sdist" if libc in ("glibc 2.12", "musl 1.2") else "wheel")


def test_what_was_never_a_wheel_says_nothing_about_pythons(compiled: World, free: Machine) -> None:
    compiled.default.sdist("script", "1.0")
    assert compiled.plan_for([free], "torch", "script==1.0").python == "3.12"


def test_the_pins_of_a_dependency_count_once_they_are_known(compiled: World, free: Machine) -> None:
    compiled.default.wheel("app", "1.0", requires=["arrays<2"])
    plan = compiled.plan_for([free], "torch", "app")
    assert (plan.python, chosen(plan)["arrays"]) == ("3.11", "1.0")
    assert "older-than-python" not in codes(plan)


def test_a_python_that_is_named_is_kept_and_the_release_is_named(compiled: World, free: Machine) -> None:
    plan = compiled.plan_for([free], "torch", "arrays==1.0", python="3.12")
    assert plan.python == "3.12"
    (told,) = [one for one in plan.warnings if one.code == "older-than-python"]
    assert "arrays 1.0" in told.message and "--python 3.11" in (told.remedy or "")


def test_torch_does_not_give_way(compiled: World, free: Machine) -> None:
    compiled.build("torch", "2.15.0", "cu128", code=NEW, pythons=("cp312",))
    compiled.default.wheel("app", "1.0", requires=["arrays<2"])
    plan = compiled.plan_for([free], "torch", "app")
    assert (plan.python, chosen(plan)["torch"]) == ("3.12", "2.15.0 cu128")
    assert "older-than-python" in codes(plan)


def test_the_literal_pins_of_a_directory_count(compiled: World, free: Machine, tmp_path: Path) -> None:
    script = "from setuptools import setup\nsetup(name='app', version='1', install_requires=['torch', 'arrays==1.0'])\n"
    (tmp_path / "setup.py").write_text(script)
    plan = compiled.plan_for([free], str(tmp_path))
    assert (plan.python, chosen(plan)["arrays"]) == ("3.11", "1.0")


def fits_only_an_older_python(world: World, free: Machine, python: str | None = None) -> Plan:
    world.default.wheel("lone", "1.0", tags=OLD_TAGS)
    return world.plan_for([free], "torch", "lone", python=python)


def test_another_python_is_taken_if_nothing_fits_with_the_first(compiled: World, free: Machine) -> None:
    plan = fits_only_an_older_python(compiled, free)
    assert (plan.status, plan.python) == ("ok", "3.11")
    (told,) = [one for one in plan.warnings if one.code == "python-chosen"]
    assert "3.11" in told.message and "lone" in told.message


def test_of_the_pythons_that_fit_the_one_with_wheels_of_old_releases_is_taken(world: World, free: Machine) -> None:
    """RVC: numba 0.56.4 has wheels up to 3.10, fairseq up to 3.8, and the setup.py of numba refuses 3.11."""
    world.build("torch", "2.14.0", "cu128", code=NEW, pythons=("cp310", "cp311", "cp312"))
    for name, pythons in (("numba", ("cp38", "cp310")), ("fairseq", ("cp38",))):
        for python in pythons:
            world.default.wheel(name, "1.0", tags=f"{python}-{python}-{LINUX}")
        for python in ("cp310", "cp311", "cp312"):
            world.default.wheel(name, "2.0", tags=f"{python}-{python}-{LINUX}")
        world.default.sdist(name, "1.0")
    world.default.wheel("app", "1.0", requires=["torch"])
    plan = world.plan_for([free], "app", "numba==1.0", "fairseq==1.0")
    assert (plan.status, plan.python) == ("ok", "3.10")
    kinds = {package.name: package.kind for package in plan.packages}
    assert (kinds["numba"], kinds["fairseq"]) == ("wheel", "sdist")


def test_a_python_that_is_named_is_only_proposed_to_change(compiled: World, free: Machine) -> None:
    plan = fits_only_an_older_python(compiled, free, python="3.12")
    assert plan.status == "impossible"
    assert [fix.text for fix in plan.remedies] == ["use another Python: 3.11"]


def test_a_refusal_names_what_a_directory_pins(compiled: World, free: Machine, tmp_path: Path) -> None:
    script = (
        "from setuptools import setup\nsetup(name='app', version='1', install_requires=['torch==2.3.0', 'arrays'])\n"
    )
    (tmp_path / "setup.py").write_text(script)
    compiled.build("torch", "2.3.0", "cu121", code=("sm_50",), pythons=("cp312",))
    plan = compiled.plan_for([free], str(tmp_path))
    assert plan.status == "impossible"
    assert [fix.text for fix in plan.remedies][:1] == ["relax torch==2.3.0"]
