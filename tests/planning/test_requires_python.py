"""What projects, wheels and source trees require of Python limits every plan."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from envsolve.facts.catalogue import Catalogue
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Asked
from envsolve.planning.plan import Plan
from envsolve.planning.plans import for_python_of_lock
from envsolve.planning.request import Request
from tests.packages.repositories import repository
from tests.planning.worlds import chosen, codes
from tests.smallworld import NEW, World

ALL = ("cp311", "cp312", "cp313", "cp314")


@pytest.fixture
def everywhere(world: World) -> World:
    """A torch for Python 3.11 to 3.14, and an older one for the first two of them."""
    world.build("torch", "2.14.0", "cu128", code=NEW, pythons=ALL)
    world.build("torch", "2.13.0", "cu128", code=NEW, pythons=ALL[:2])
    return world


def project(folder: Path, requires: str, *dependencies: str) -> Asked:
    listed = ", ".join(f'"{line}"' for line in dependencies or ("torch",))
    folder.mkdir(exist_ok=True)
    text = f'[project]\nname = "demo"\nversion = "1"\nrequires-python = "{requires}"\ndependencies = [{listed}]\n'
    (folder / "pyproject.toml").write_text(text)
    return read_requirements((), projects=[folder])


def facts(plan: Plan) -> list[str]:
    return [fact.fact for fact in plan.conflict]


def actions(plan: Plan) -> list[str]:
    return [remedy.text for remedy in plan.remedies]


@pytest.mark.parametrize(
    ("requires", "python"),
    [
        (">=3.14", "3.14"),
        (">=3.10,<3.12", "3.11"),
        (">=3.13", "3.13"),
        (">=3.10", "3.12"),
        ("==3.11.*", "3.11"),
        (">=3.13.2,<3.13.9", "3.13"),
    ],
)
def test_a_plan_is_for_a_python_that_the_project_requires(
    everywhere: World, tmp_path: Path, requires: str, python: str
) -> None:
    """The target's own Python, 3.12, is only a default."""
    plan = everywhere.plan(asked=project(tmp_path / "demo", requires))
    assert (plan.status, plan.python) == ("ok", python)
    assert ("python-differs" in codes(plan)) == (python != "3.12")


def test_a_python_that_the_project_does_not_allow_is_refused(everywhere: World, tmp_path: Path) -> None:
    plan = everywhere.plan(asked=project(tmp_path / "demo", ">=3.13"), python="3.11")
    assert plan.status == "impossible"
    assert facts(plan) == ["the project requires Python >=3.13", "the environment's Python is 3.11"]
    assert actions(plan) == ["use another Python: 3.13, 3.14"]


def test_no_python_is_proposed_that_the_project_does_not_allow(everywhere: World, tmp_path: Path) -> None:
    plan = everywhere.plan(asked=project(tmp_path / "demo", ">=3.13", "torch==2.13.0"))
    assert plan.status == "impossible"
    assert "the environment's Python is 3.13, as requires-python is >=3.13" in facts(plan)
    assert actions(plan)[:2] == ["relax torch==2.13.0", "change requires-python >=3.13 to allow Python 3.11, 3.12"]


@pytest.mark.parametrize(
    ("lock", "requires", "python", "told"),
    [
        ("==3.11.*", None, "3.11", "the lock requires Python ==3.11.*"),
        (">=3.10", None, "3.12", None),
        ("==3.13.*", ">=3.11", "3.13", "the lock requires Python ==3.13.*"),
        ("==3.11.*", ">=3.13", "3.13", "the project requires Python >=3.13"),  # the project counts for more
    ],
)
def test_a_plan_is_for_the_python_of_an_earlier_lock(
    everywhere: World, tmp_path: Path, lock: str, requires: str | None, python: str, told: str | None
) -> None:
    asked = project(tmp_path / "demo", requires) if requires else read_requirements(["torch"])
    request, both = for_python_of_lock(Request(requires_python=lock), asked, Catalogue())
    plan = everywhere.plan(asked=both, requires_python=request.requires_python)
    assert (plan.status, plan.python) == ("ok", python)
    differs = [warning.message for warning in plan.warnings if warning.code == "python-differs"]
    assert [text.startswith(told or "") for text in differs] == [True] * (told is not None)
    set_aside = "no Python satisfies the lock's requires-python, ==3.11.*, and >=3.13 of the projects"
    assert any(note.startswith(set_aside) for note in both.notes) == (python == "3.13" and lock == "==3.11.*")


def test_a_python_that_is_asked_for_goes_before_that_of_a_lock(everywhere: World) -> None:
    asked, request = read_requirements(["torch"]), Request(python="3.14", requires_python="==3.11.*")
    assert for_python_of_lock(request, asked, Catalogue()) == (request, asked)


def test_a_project_for_a_python_that_is_not_known_is_refused(everywhere: World, tmp_path: Path) -> None:
    plan = everywhere.plan(asked=project(tmp_path / "demo", ">=4"))
    assert plan.status == "impossible"
    assert facts(plan)[0] == "the project requires Python >=4"
    assert "the catalogue has torch builds for Python 3.6 to" in facts(plan)[1]
    assert actions(plan) == ["change requires-python >=4 to allow Python 3.11, 3.12, 3.13, 3.14"]


def test_projects_that_allow_no_common_python_are_refused(everywhere: World, tmp_path: Path) -> None:
    one, other = project(tmp_path / "one", ">=3.13"), project(tmp_path / "other", "<3.12")
    together = read_requirements((), projects=[tmp_path / "one", tmp_path / "other"])
    assert one.requires_python and other.requires_python
    assert everywhere.plan(asked=together).status == "impossible"


def test_a_project_without_torch_is_limited_too(world: World, tmp_path: Path) -> None:
    world.default.wheel("dep", "1.0")
    asked = project(tmp_path / "demo", ">=3.13", "dep")
    assert world.plan(asked=asked).python == "3.13"
    refused = world.plan(asked=asked, python="3.12")
    assert (refused.status, actions(refused)[0].partition(":")[0]) == ("impossible", "use another Python")


def test_an_older_release_whose_wheel_allows_the_python_is_taken(world: World) -> None:
    world.default.wheel("dep", "2.0", requires_python=">=3.13")
    world.default.wheel("dep", "1.0", requires_python=">=3.9")
    assert chosen(world.plan("dep")) == {"dep": "1.0"}


def test_what_only_the_metadata_of_a_wheel_says_counts(world: World) -> None:
    """A page of links gives no data-requires-python."""
    world.default.wheel("dep", "2.0", requires_python=">=3.13")
    world.default.wheel("dep", "1.0", requires_python=">=3.9")
    for entry in world.default.projects["dep"]:
        entry.requires_python = None
    assert chosen(world.plan("dep")) == {"dep": "1.0"}


def test_a_wheel_by_url_for_another_python_is_refused(world: World) -> None:
    entry = world.default.wheel("dep", "2.0", requires_python=">=3.13")
    plan = world.plan(f"dep @ {world.default.address(entry)}")
    assert plan.status == "impossible"
    assert "dep requires Python >=3.13" in facts(plan)
    assert any(action.startswith("use another Python: 3.13") for action in actions(plan))


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_source_tree_for_another_python_is_refused(world: World, tmp_path: Path) -> None:
    text = '[project]\nname = "pure"\nversion = "2.0"\nrequires-python = ">=3.13"\n'
    repository(tmp_path / "source", {"pyproject.toml": text})
    plan = world.plan(f"pure @ git+{(tmp_path / 'source').as_uri()}")
    assert plan.status == "impossible"
    assert any("requires Python >=3.13" in fact for fact in facts(plan))


def test_the_python_that_most_packages_support_is_tried_first() -> None:
    pythons = Catalogue().pythons
    assert pythons[0] == "3.12"
    assert {"3.10", "3.13", "3.14"} <= set(pythons)
