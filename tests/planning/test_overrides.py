"""Overrides and the indexes that a project names for a package bind the solver."""

from __future__ import annotations

from packaging.requirements import Requirement

from envsolve.packages.requirements import Asked, Need
from tests.planning.worlds import chosen
from tests.smallworld import World


def asked(needs: list[str], overrides: list[str]) -> Asked:
    def of(lines: list[str]) -> tuple[Need, ...]:
        return tuple(Need(Requirement(line), "pyproject.toml") for line in lines)

    return Asked(needs=of(needs), overrides=of(overrides))


def test_an_override_replaces_what_packages_require(world: World) -> None:
    """descript-audiotools requires protobuf<3.20, and the project protobuf>=3.20."""
    for version in ("3.19", "3.20", "6.0"):
        world.default.wheel("protobuf", version)
    world.default.wheel("tools", "1.0", requires=["protobuf<3.20"])
    plan = world.plan(asked=asked(["tools"], ["protobuf>=3.20,<6"]))
    assert chosen(plan)["protobuf"] == "3.20"
    (warning,) = [w for w in plan.warnings if w.code == "override"]
    assert warning.message == "tools 1.0 requires protobuf<3.20, but the project's override sets version 3.20"


def test_an_override_replaces_what_the_project_asks_and_keeps_its_extras(world: World) -> None:
    world.default.wheel("numpy", "1.26", extras=["more"], requires=['extra-one; extra == "more"'])
    world.default.wheel("numpy", "2.0")
    world.default.wheel("extra-one", "1.0")
    assert chosen(world.plan(asked=asked(["numpy[more]>=2"], ["numpy<2"]))) == {"numpy": "1.26", "extra-one": "1.0"}


def test_an_override_of_torch_binds_the_family(torch_world: World) -> None:
    assert chosen(torch_world.plan(asked=asked(["torch>=2.14"], ["torch==2.11.0"])))["torch"].startswith("2.11.0")


def test_an_override_under_a_marker_that_does_not_hold_drops_the_requirement(world: World) -> None:
    world.default.wheel("tools", "1.0", requires=["other"])
    assert chosen(world.plan(asked=asked(["tools"], ['other; sys_platform == "win32"']))) == {"tools": "1.0"}
