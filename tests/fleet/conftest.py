"""Fleets in a small world: torch with cu126 for old GPUs and cu130 for new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envsolve.fleet.probe import probe_files
from envsolve.machine.model import Machine
from envsolve.packages.requirement_files import read_requirements
from envsolve.planning import plans as planning
from envsolve.planning.groups import Plans, make_plans
from envsolve.planning.make import make_plan
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from tests.fleet.profiles import profile
from tests.smallworld import NEW, OLD, World, small_world

MakeFleet = Callable[..., Path]


@pytest.fixture
def torches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Plan with this world's index and catalogue."""
    with small_world(tmp_path) as world:
        world.default.wheel("filelock", "1.0", upload_time="2024-01-01T00:00:00Z")
        world.build("torch", "2.11.0", "cu130", requires=["filelock"], code=NEW)
        world.build("torch", "2.11.0", "cu126", index="pytorch", requires=["filelock"], code=OLD)
        catalogue = world.catalogue()

        def plan_groups(request: Request, machines: list[Machine]) -> Plans:
            with world.client() as client:
                return make_plans(read_requirements(request.requirements), machines, request, catalogue, client)

        def plan(request: Request, machines: list[Machine]) -> Plan:
            with world.client() as client:
                return make_plan(read_requirements(request.requirements), machines, request, catalogue, client)

        monkeypatch.setattr(planning, "plan_groups", plan_groups)
        monkeypatch.setattr(planning, "plan", plan)
        yield world


@pytest.fixture
def make_fleet(tmp_path: Path) -> MakeFleet:
    """Write a fleet's inventory from (node, GPU, driver)."""

    def make(*nodes: tuple[str, str | None, str], expected: tuple[str, ...] = ()) -> Path:
        (tmp_path / "in").mkdir()
        for node, gpu, driver in nodes:
            (tmp_path / "in" / f"{node}.json").write_bytes(profile(node, gpu, driver))
        probe_files(tmp_path / "fleet", [tmp_path / "in"], expected)
        return tmp_path / "fleet"

    return make
