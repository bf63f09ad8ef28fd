"""What to relax of a request that has no answer; each fix is solved, so following it gives a plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.smallworld import NEW, OLD, World, small_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Old and new torch with their Triton; what else there is, a test adds."""
    with small_world(tmp_path) as made:
        for torch, triton, variant, code in (("2.4.1", "3.0.0", "cu121", OLD), ("2.14.1", "3.8.0", "cu130", NEW)):
            made.build("torch", torch, variant, requires=[f"triton=={triton}"], code=code)
            made.build("triton", triton, "any")
        yield made


def _ways(world: World, *requirements: str, target: str = "RTX 5090, driver 580.95.05") -> list[tuple[str, str]]:
    return [(fix.text, fix.unlocks) for fix in world.plan(*requirements, target=target).remedies]


def test_the_pins_of_torch_are_relaxed_together(world: World) -> None:
    world.default.wheel("app", "1.0", requires=["torch"])
    ways = _ways(world, "torch==2.4.1", "triton==3.0.0", "app==1.0")
    assert ways[0] == ("relax torch==2.4.1 and triton==3.0.0", "torch 2.14.1 [cu130] with triton 3.8.0")
    assert world.plan("torch", "triton", "app==1.0", target="RTX 5090, driver 580.95.05").status == "ok"


def test_a_pin_for_another_python_is_not_relaxed(world: World) -> None:
    ways = _ways(world, "torch==2.4.1; python_version < '3.14'", "torch>=2.9; python_version >= '3.14'")
    assert ways[0] == ("relax torch==2.4.1", "torch 2.14.1 [cu130]")


def test_another_pin_that_holds_the_old_torch_is_relaxed_with_it(world: World) -> None:
    world.default.wheel("app", "1.0", requires=["torch<2.5"])
    world.default.wheel("app", "2.0", requires=["torch"])
    ways = _ways(world, "torch==2.4.1", "app==1.0")
    assert ways[0] == ("relax torch==2.4.1 and app==1.0", "torch 2.14.1 [cu130] with app 2.0")


def test_a_conflict_names_only_the_requirements_that_exclude_each_other(world: World) -> None:
    for version in ("1.0", "2.0"):
        world.default.wheel("base", version)
    for number in range(8):
        world.default.wheel(f"user{number}", "1.0", requires=["base"])
    for version, limit in (("1.0", "base<2"), ("2.0", "base>=2")):
        world.default.wheel("tool", version, requires=[limit])
    users = [f"user{number}" for number in range(8)]
    plan = world.plan(*users, "base==2.0", "tool==1.0")
    assert {fact.fact.split()[0] for fact in plan.conflict} == {"tool", "base==2.0", "no"}
    fixes = {(fix.text, fix.unlocks) for fix in plan.remedies}
    assert fixes == {("relax base==2.0", "base 1.0"), ("relax tool==1.0", "tool 2.0")}


def test_what_no_other_version_helps_is_given_up(world: World) -> None:
    world.default.wheel("one", "1.0", requires=["base==1.0"])
    world.default.wheel("other", "1.0", requires=["base==2.0"])
    world.default.wheel("base", "1.0")
    world.default.wheel("base", "2.0")
    assert [text for text, _ in _ways(world, "one", "other")] == ["leave out one", "leave out other"]


def test_a_sibling_for_another_cuda_is_proposed_only_if_the_rest_fits(world: World) -> None:
    target = "A100, driver 470.82"
    for package in ("maker-cu11", "maker-cu12"):
        world.default.wheel(package, "1.0", requires=["base"])
    world.default.wheel("base", "1.0")
    sibling = ("request maker-cu11 instead of maker-cu12", "maker-cu11 1.0")
    assert sibling in _ways(world, "maker-cu12", target=target)
    world.default.wheel("app", "1.0", requires=["maker-cu12"])
    assert sibling not in _ways(world, "maker-cu12", "app", target=target)


def test_pins_of_one_version_with_and_without_a_variant_agree(world: World) -> None:
    plan = world.plan("torch==2.14.1", "torch==2.14.1+cu130", target="H100, driver 580.95.05")
    assert plan.status == "ok"


def test_a_newer_torch_is_not_offered_against_the_request(world: World) -> None:
    world.build("torch", "2.15.0", "cu130", requires=["triton==3.9.0"], code=NEW)
    world.build("triton", "3.9.0", "any")
    plan = world.plan("torch==2.4.1", target="A100, driver 550.54")
    assert "newer-torch-held-back" not in {one.code for one in plan.warnings}
