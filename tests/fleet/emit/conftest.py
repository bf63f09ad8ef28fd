"""A fleet with two plans, for the tools that start programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.fleet.plan import FleetPlan, Group
from envsolve.fleet.probe import probe_files
from envsolve.planning.lock import Assumptions
from envsolve.system.files import dump
from tests.fleet.profiles import profile

OLD = Assumptions(python="3.12", arch="x86_64", driver_required="525.60.13", gpus=("7.0",), cuda="cu126")
NEW = Assumptions(python="3.12", arch="x86_64", driver_required="580.65.06", gpus=("9.0",), cuda="cu130")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """The directory of a planned fleet; its name has a space."""
    fleet = tmp_path / "a fleet"
    (fleet / "locks").mkdir(parents=True)
    groups = (
        Group("cu126-sm70", ("v100-535.104.05",), ("v1", "v2"), "0123456789ab", "ok", OLD, {}),
        Group("cu130-sm90", ("h100-580.95.05",), ("h1",), "ba9876543210", "ok", NEW, {}),
    )
    for group in groups:
        group.lock(fleet).write_text('lock-version = "1.0"\n')
    kinds = (("v1", "V100", "535.104.05"), ("v2", "V100", "535.104.05"), ("h1", "H100", "580.95.05"))
    (tmp_path / "in").mkdir()
    for node, gpu, driver in kinds:
        (tmp_path / "in" / f"{node}.json").write_bytes(profile(node, gpu, driver))
    probe_files(fleet, [tmp_path / "in"])
    (fleet / "plan.json").write_text(dump(FleetPlan(python="3.12", groups=groups)))
    return fleet
