"""Machines whose driver is not known: a definite plan for the oldest driver that may be there."""

from __future__ import annotations

from typing import Any

import pytest

import envsolve
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Asked
from envsolve.planning import assumptions
from envsolve.planning.assumptions import plan_assuming
from envsolve.planning.make import make_plan
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from envsolve.rules.judge import with_assumed_driver
from tests.smallworld import World

CATALOGUE = Catalogue()


@pytest.mark.parametrize(
    ("gpu", "cuda"),
    [
        ("RTX 5090", "12.8"),  # R570 is its first branch
        ("GB10", "13.0"),
        ("RTX 4090", "12.0"),
        ("V100", "12.0"),  # no driver before R525 is assumed, though older ones support it
        ("Tesla K80", "11.4"),  # R470 is its last branch
    ],
)
def test_the_oldest_driver_that_may_be_there(gpu: str, cuda: str) -> None:
    machine = envsolve.describe_target(f"{gpu}, linux-x86_64")
    supposed = with_assumed_driver(machine, CATALOGUE.architectures, CATALOGUE.drivers)
    assert supposed.driver == Driver(cuda=cuda)


@pytest.mark.parametrize("target", ["RTX 5090, driver 575.51", "no gpu", "linux-x86_64"])
def test_nothing_is_assumed(target: str) -> None:
    machine = envsolve.describe_target(target)
    assert with_assumed_driver(machine, CATALOGUE.architectures, CATALOGUE.drivers) == machine


def planned(world: World, target: str, *requirements: str, **choices: str) -> Plan:
    with world.client() as client:
        request = Request(**choices)  # type: ignore[arg-type]
        machines = [world.machine(target)]
        return plan_assuming(read_requirements(requirements), machines, request, world.catalogue(), client)


def warning(plan: Plan) -> str:
    return next(f"{one.message}; {one.remedy}" for one in plan.warnings if one.code == "driver-unknown")


def test_the_plan_is_definite_and_says_what_a_newer_driver_gives(torch_world: World) -> None:
    plan = planned(torch_world, "RTX 4090", "torch")
    assert plan.status == "ok"
    assert [(p.version, p.variant) for p in plan.packages if p.name == "torch"] == [("2.14.1+cu126", "cu126")]
    assert plan.machines[0].driver is None
    assert plan.driver is not None
    assert (plan.driver.required, plan.driver.have) == ("525.60.13", None)
    assert "the plan assumes a driver for CUDA 12.0 or newer" in warning(plan)
    assert "with driver 580.65.06 or newer: torch 2.14.1 [" in warning(plan)


def test_a_request_for_a_newer_driver_has_the_status_unknown(torch_world: World) -> None:
    plan = planned(torch_world, "RTX 4090", "torch", cuda="cu130")
    assert plan.status == "unknown"
    assert "it is not known whether it runs this CUDA" in warning(plan)


def test_nothing_is_planned_for_a_driver_that_runs_no_build(
    torch_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Plan] = []

    def counted(asked: Asked, *given: Any) -> Plan:
        made.append(make_plan(asked, *given))
        return made[-1]

    monkeypatch.setattr(assumptions, "make_plan", counted)
    assert planned(torch_world, "RTX 4090", "torch", cuda="cu130") is made[0]
    assert len(made) == 1


@pytest.mark.parametrize(("libc", "status"), [("", "ok"), (", glibc 2.28", "impossible")])
def test_a_newer_libc_is_assumed_if_nothing_fits_an_old_one(torch_world: World, libc: str, status: str) -> None:
    torch_world.default.wheel("scans", "1.0", tags="cp312-cp312-manylinux_2_31_x86_64")
    machine = envsolve.describe_target(f"RTX 4090, driver 580.95, python 3.12{libc}")
    with torch_world.client() as client:
        asked = read_requirements(("torch", "scans"))
        plan = plan_assuming(asked, [machine], Request(), torch_world.catalogue(), client)
    assert (plan.status, plan.machines) == (status, (machine,))
    said = [one.message for one in plan.warnings if one.code == "libc-unknown"]
    assert said == (["the machine's libc is not known; the plan assumes glibc 2.31 or newer"] if status == "ok" else [])
