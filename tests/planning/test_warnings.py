"""What a plan that works still has to say."""

from __future__ import annotations

import pytest

from envsolve.planning.plan import Plan
from tests.smallworld import World


def said(plan: Plan, code: str) -> list[str]:
    return [f"{warning.message}; {warning.remedy}" for warning in plan.warnings if warning.code == code]


@pytest.fixture
def extras(world: World) -> World:
    world.default.wheel("requests", "2.34", extras=["socks"], requires=['pysocks; extra == "socks"'])
    world.default.wheel("pysocks", "1.0")
    world.default.wheel("tool", "1.0", requires=["requests[gone]"])
    return world


def test_an_extra_that_no_version_has_is_reported_with_those_there_are(extras: World) -> None:
    plan = extras.plan("requests[nosuchextra,Socks]")
    assert {package.name for package in plan.packages} == {"requests", "pysocks"}
    (warning,) = said(plan, "unknown-extra")
    assert "requests[nosuchextra] 2.34" not in warning
    assert "requests 2.34 has no extra nosuchextra" in warning
    assert "its extras: socks" in warning


def test_an_extra_that_only_a_dependency_asks_for_is_reported_too(extras: World) -> None:
    assert "has no extra gone" in said(extras.plan("tool"), "unknown-extra")[0]


def test_known_extras_say_nothing(extras: World) -> None:
    assert said(extras.plan("requests[socks]"), "unknown-extra") == []


def test_an_extra_of_a_build_is_reported(torch_world: World) -> None:
    plan = torch_world.plan("torch[cuda]")
    assert "torch 2.14.1 [cu130] has no extra cuda" in said(plan, "unknown-extra")[0]
