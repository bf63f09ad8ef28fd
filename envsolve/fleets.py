"""Public API on fleets: probe the nodes of a cluster, plan, install, verify, and write files for other tools."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from envsolve.fleet import emit, install, plan, probe, verify
from envsolve.fleet.engines import Options, engine_named
from envsolve.fleet.jobs import only_one
from envsolve.fleet.model import Inventory, names_expanded
from envsolve.install.environment import Installed
from envsolve.install.errors import Progress, silent
from envsolve.planning.request import Request
from envsolve.system.files import StrPath, items, path_of, paths

#: How to reach nodes.
FleetOptions = Options
EngineName = Literal["slurm", "clustershell", "ray"]


def probe_fleet(
    fleet: StrPath,
    engine: EngineName | None = None,
    options: FleetOptions | None = None,
    *,
    sources: Sequence[StrPath] = (),
    python: str = "python3",
) -> Inventory:
    """Probe every node, and write the inventory into the fleet's directory.

    Args:
        fleet: The fleet's directory, on a file system that the nodes share.
        engine: Reaches the nodes; None reads profiles from files.
        options: How to reach them, and which.
        sources: Directories with profiles, if there is no engine.
        python: The Python of the nodes, 3.6 or newer.

    Raises:
        UsageError: The engine is not installed, or the nodes are not named.
        EnvsolveError: The engine fails as a whole.
    """
    place, options = path_of(fleet, "fleet"), options or FleetOptions()
    with only_one(place):
        if engine is None:
            return probe.probe_files(place, paths(sources, "sources"), names_expanded(options.nodes or ""))
        return probe.probe_nodes(place, engine_named(engine, options), python=python)


def plan_fleet(fleet: StrPath, request: Request, *, without: Sequence[str] = ()) -> plan.FleetPlan:
    """Make the fewest plans that fit all nodes of the last probe, and write them with their locks.

    Args:
        fleet: The fleet's directory.
        request: What each plan is to contain.
        without: Classes of nodes to leave out.

    Raises:
        EnvsolveError: See :func:`envsolve.fleet.plan.plan_fleet`.
    """
    place = path_of(fleet, "fleet")
    inventory = probe.read_inventory(place)
    with only_one(place):
        return plan.plan_fleet(place, inventory, request, without=items(without, str, "without"))


def install_fleet(
    fleet: StrPath, *, manager: str | None = None, progress: Progress | None = None
) -> Mapping[str, Installed]:
    """Make the environment of each plan, once for all nodes; those that are there are left alone.

    Args:
        fleet: The fleet's directory.
        manager: ``uv`` or ``pip``; if None, uv if it is installed.
        progress: Called with every step.

    Raises:
        EnvsolveError: See :func:`envsolve.fleet.install.install_fleet`.
    """
    place = path_of(fleet, "fleet")
    return install.install_fleet(place, plan.read_plan(place), manager=manager, progress=progress or silent)


def verify_fleet(
    fleet: StrPath,
    engine: EngineName,
    options: FleetOptions | None = None,
    *,
    compile_only: bool = False,
    quick: bool = False,
    again: bool = False,
    python: str | None = None,
) -> verify.FleetReport:
    """Verify the environments on every node; nodes that have passed are not run again.

    Args:
        fleet: The fleet's directory.
        engine: Reaches the nodes.
        options: How to reach them, and which. Checks take longer than a probe: set ``time_limit``.
        compile_only: Only compile, for the GPUs of each node's class.
        quick: Whether to run only the fastest checks.
        again: Also run on nodes that have already passed.
        python: A Python with envsolve on the nodes; this one if None.

    Raises:
        EnvsolveError: See :func:`envsolve.fleet.verify.verify_fleet`.
    """
    place = path_of(fleet, "fleet")
    reached = engine_named(engine, options or FleetOptions(time_limit=1200.0, whole=not compile_only))
    made, inventory = plan.read_plan(place), probe.read_inventory(place)
    choice = verify.Choice(compile_only, quick, again, python or sys.executable)
    with only_one(place):
        return verify.verify_fleet(place, made, inventory, reached, choice)


def emit_fleet(fleet: StrPath, tool: str, *, python: str | None = None) -> str:
    """Write a file for a tool that starts programs: ``ansible``, ``ray``, ``skypilot`` or ``slurm-prolog``.

    Raises:
        UsageError: The tool is unknown, or no plan fits a node.
    """
    place = path_of(fleet, "fleet")
    return emit.emitted(tool, place, plan.read_plan(place), python=python or sys.executable)
