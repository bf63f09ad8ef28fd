"""The runtime_env of Ray, also by Ray itself if it is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envsolve.fleet.emit.ray import render
from envsolve.fleet.plan import read_plan


def command(fleet: Path) -> str:
    text = render(fleet, read_plan(fleet), "/opt/python")
    (line,) = [line for line in text.splitlines() if not line.startswith("#")]
    key, _, value = line.partition(": ")
    assert key == "py_executable"
    return str(json.loads(value))


def test_workers_run_in_the_environment_of_their_node(fleet: Path) -> None:
    assert command(fleet) == f"/opt/python -m envsolve run --fleet '{fleet}' -- python"


def test_ray_accepts_it(fleet: Path) -> None:
    ray = pytest.importorskip("ray.runtime_env")
    assert ray.RuntimeEnv(py_executable=command(fleet))["py_executable"] == command(fleet)
