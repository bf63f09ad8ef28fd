"""The fewest plans for a fleet, each as a lock in the fleet's directory, and what a driver upgrade would save.

``plan.json`` is the plan of the fleet and ``locks/pylock.NAME.toml`` the lock of each of its plans.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.fleet import constraints
from envsolve.fleet.model import Inventory, NodeClass, by_reason, is_node, names_folded, read_saved
from envsolve.formats import group_names, remarks
from envsolve.machine.completed import complete
from envsolve.machine.model import Driver, Machine, one_line
from envsolve.planning import plans as planning
from envsolve.planning.groups import Plans
from envsolve.planning.lock import Assumptions, assumptions_of
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from envsolve.system.files import dump, replace_file
from envsolve.system.limits import count_of
from envsolve.system.progress import say
from envsolve.values import DriverVersion, PythonVersion

SCHEMA: Literal["envsolve.fleet-plan/1"] = "envsolve.fleet-plan/1"
_PLAN, _LOCKS, _ENVIRONMENTS = "plan.json", "locks", "envs"
_HINT = "run envsolve fleet plan first, with the same --fleet"


class Group(msgspec.Struct, frozen=True):
    """One plan of a fleet.

    Attributes:
        name: ``cu126-sm70-sm90``.
        classes: Names of the classes that it fits.
        nodes: Their nodes.
        digest: Begins the SHA-256 of the lock; the environment's directory has it in its name.
        assumes: What a node must be for the environment to run on it.
        constraints: The same as requirements of jobs, by scheduler.
        remarks: What was chosen, and warnings.
    """

    name: str
    classes: tuple[str, ...]
    nodes: tuple[str, ...]
    digest: str
    status: Literal["ok", "impossible", "unknown"]
    assumes: Assumptions
    constraints: Mapping[str, Any]
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse names that would be another path, and assumptions that no plan makes."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*:[0-9A-Za-z]*", f"{self.name}:{self.digest}"):
            raise ValueError(f"{self.name[:50]!r} with digest {self.digest[:50]!r} is not a plan of a fleet")
        if odd := next((name for name in self.nodes if not is_node(name)), None):
            raise ValueError(f"{odd[:50]!r} is not the name of a node")
        Assumptions.from_table(self.assumes.to_table())

    def lock(self, fleet: Path) -> Path:
        """The lock of the plan."""
        return fleet / _LOCKS / f"pylock.{self.name}.toml"

    def environment(self, fleet: Path) -> Path:
        """Where the environment of the plan is, or will be."""
        return fleet / _ENVIRONMENTS / f"{self.name}-{self.digest}"


class Upgrade(msgspec.Struct, frozen=True):
    """The gain from a newer driver on some nodes.

    Attributes:
        before: The driver of the nodes, ``after`` the newer one.
        plans: The number of plans afterwards.
        unserved: The number of nodes without a plan afterwards.
    """

    before: str
    after: str
    nodes: tuple[str, ...]
    plans: int
    unserved: int


class FleetPlan(msgspec.Struct, frozen=True):
    """The plans of a fleet.

    Attributes:
        groups: The fewest plans; no class is in two of them.
        unserved: Classes that no plan fits, with the reason.
        left_out: Classes that were left out on request.
        unreachable: Nodes that were not probed, with the reason; nothing is planned for them.
        fewer: Why one plan does not fit all classes; empty if there is one plan.
        upgrades: Driver upgrades that lead to fewer plans, or to plans for more nodes.
        unlocked: Why hashes are missing; such a plan is returned, and not written.
    """

    schema: Literal["envsolve.fleet-plan/1"] = SCHEMA
    requirements: tuple[str, ...] = ()
    python: str | None = None
    groups: tuple[Group, ...] = ()
    unserved: Mapping[str, str] = {}
    left_out: tuple[str, ...] = ()
    unreachable: Mapping[str, str] = {}
    fewer: tuple[str, ...] = ()
    upgrades: tuple[Upgrade, ...] = ()
    unlocked: str | None = None

    @property
    def group_of(self) -> Mapping[str, Group]:
        """The plan of each node that has one."""
        return {node: group for group in self.groups for node in group.nodes}


def plan_fleet(fleet: Path, inventory: Inventory, request: Request, *, without: Sequence[str] = ()) -> FleetPlan:
    """Make the fewest plans that fit all classes, and write them with their locks.

    If the catalogue answers for an index that cannot be reached, hashes are missing. The plan is then returned, and
    what an earlier call wrote stays as it is: jobs run in those environments.

    Args:
        fleet: The fleet's directory.
        inventory: Its nodes.
        request: What each plan is to contain. Without a Python, it is the newest one that all nodes have.
        without: Classes to leave out.

    Raises:
        UsageError: The class is unknown, or none is left; otherwise as :func:`envsolve.plan_groups`.
        IndexUnavailableError: As there.
    """
    names = {one.name for one in inventory.classes}
    if unknown := sorted(set(without) - names):
        raise UsageError(f"there is no class {', '.join(unknown)}", hint=f"classes: {', '.join(sorted(names))}")
    classes = [one for one in inventory.classes if one.name not in without]
    if not classes:
        raise UsageError("all classes of nodes were left out", hint="envsolve fleet show lists the nodes")
    request = replace(request, python=request.python or common_python(classes, Catalogue()))
    say(f"planning for {count_of(len(classes), 'class', 'classes')} of nodes")
    made = planning.plan_groups(request, [one.machine for one in classes])
    locks, unlocked = _locks(made)
    groups = _groups(made, locks, classes, inventory)
    fleet_plan = FleetPlan(
        requirements=tuple(request.requirements),
        python=request.python,
        groups=groups,
        unserved=_unserved(made, classes),
        left_out=tuple(dict.fromkeys(without)),
        unreachable=inventory.unreachable,
        fewer=_why_not_one(made, classes, request),
        upgrades=_upgrades(made, classes, request),
        unlocked=unlocked,
    )
    if not unlocked:
        (fleet / _LOCKS).mkdir(parents=True, exist_ok=True)
        for group, text in zip(groups, locks, strict=True):
            replace_file(group.lock(fleet), text)
        replace_file(fleet / _PLAN, dump(fleet_plan))
    return fleet_plan


def read_plan(fleet: Path) -> FleetPlan:
    """Read the plan of a fleet.

    Raises:
        UsageError: It is missing or cannot be read.
    """
    return read_saved(fleet / _PLAN, FleetPlan, "the plan of a fleet", _HINT)


def common_python(classes: Sequence[NodeClass], catalogue: Catalogue) -> str | None:
    """Return the newest Python that every node has, as far as is known.

    An environment in a shared directory runs the interpreter that it was made with, so that must be on every node.
    """
    known = [{PythonVersion.parse(one.version) for one in c.machine.pythons} for c in classes if c.machine.pythons]
    common = set.intersection(*known) if known else set()
    return str(max(common)) if (common := {one for one in common if str(one) in catalogue.pythons}) else None


def _locks(made: Plans) -> tuple[Sequence[str], str | None]:
    """The lock of each plan, or why there are none."""
    try:
        return [plan.render("pylock") for plan in made.plans], None
    except IndexUnavailableError as error:
        return [""] * len(made.plans), error.message


def _groups(made: Plans, locks: Sequence[str], classes: Sequence[NodeClass], inventory: Inventory) -> tuple[Group, ...]:
    catalogue = Catalogue()
    groups = []
    for name, plan, text in zip(group_names(made), made.plans, locks, strict=True):
        own = [one for one in classes if one.machine in plan.machines]
        nodes = tuple(node for one in own for node in one.nodes)
        assumes = assumptions_of(plan)
        group = Group(
            name=name,
            classes=tuple(one.name for one in own),
            nodes=nodes,
            digest=hashlib.sha256(text.encode()).hexdigest()[:12] if text else "",
            status=plan.status,
            assumes=assumes,
            constraints=_constraints(assumes, nodes, inventory, catalogue),
            remarks=tuple(remarks(plan)),
        )
        groups.append(group)
    return tuple(groups)


def _constraints(
    assumes: Assumptions, nodes: Sequence[str], inventory: Inventory, catalogue: Catalogue
) -> Mapping[str, Any]:
    modules = {one.name: f"{constraints.__name__}.{one.name}" for one in pkgutil.iter_modules(constraints.__path__)}
    return {
        name: importlib.import_module(module).requirements(assumes, nodes, inventory, catalogue)
        for name, module in sorted(modules.items())
    }


def _unserved(made: Plans, classes: Sequence[NodeClass]) -> Mapping[str, str]:
    return {one.name: _because(plan) for plan in made.unserved for one in classes if one.machine in plan.machines}


def _because(plan: Plan) -> str:
    return "; ".join(fact.fact for fact in plan.conflict) or "nothing published fits"


def _why_not_one(made: Plans, classes: Sequence[NodeClass], request: Request) -> tuple[str, ...]:
    """Say why fewer plans are not enough; groups are found by trying fewer first."""
    if len(made.plans) < 2:
        return ()
    served = [one.machine for one in classes if any(one.machine in plan.machines for plan in made.plans)]
    if len({(m.platform.os, m.platform.arch) for m in served if m.platform}) > 1:
        return ("the nodes have several systems or architectures",)
    return tuple(fact.fact for fact in planning.plan(request, served).conflict)


def _upgrades(made: Plans, classes: Sequence[NodeClass], request: Request) -> tuple[Upgrade, ...]:
    """Plan again with each older driver replaced by the newest one of the fleet."""
    drivers = sorted({d for one in classes if (d := _driver(one.machine))}, key=DriverVersion.parse)
    if len(drivers) < 2 or (len(made.plans) < 2 and not made.unserved):
        return ()
    catalogue, newest = Catalogue(), drivers[-1]
    now = len(made.plans), _lost(made, classes)
    found = []
    for driver in drivers[:-1]:
        say(f"planning for driver {newest} instead of {driver}")
        after = [
            replace(one, machine=complete(replace(one.machine, driver=Driver(newest)), catalogue))
            if _driver(one.machine) == driver
            else one
            for one in classes
        ]
        then = planning.plan_groups(request, [one.machine for one in after])
        figures = len(then.plans), _lost(then, after)
        if (figures[1] <= now[1] and figures < now) or figures[1] < now[1]:
            nodes = tuple(node for one in classes if _driver(one.machine) == driver for node in one.nodes)
            found.append(Upgrade(driver, newest, nodes, *figures))
    return tuple(found)


def _lost(made: Plans, classes: Sequence[NodeClass]) -> int:
    return sum(len(one.nodes) for one in classes if any(one.machine in plan.machines for plan in made.unserved))


def _driver(machine: Machine) -> str | None:
    return machine.driver.version if machine.driver and machine.accelerators else None


def describe(made: FleetPlan, inventory: Inventory | None = None) -> str:
    """Say which plan each class gets, what jobs must request, and what a driver upgrade would save."""
    served = sum(len(group.nodes) for group in made.groups)
    total = sum(len(one.nodes) for one in inventory.classes) if inventory else served
    total += len(made.unreachable)
    lines = [f"{count_of(len(made.groups), 'plan')} for {served} of {total} nodes, Python {made.python or 'any'}"]
    machines = {one.name: one for one in inventory.classes} if inventory else {}
    for group in made.groups:
        what = group.remarks[0].removeprefix("chosen: ") if group.remarks else group.status
        lines.append(f"plan {group.name}: {what}")
        lines += [f"  {name}: {_of_class(machines.get(name))}" for name in group.classes]
        lines += [f"  {line}" for line in (*_asked(group), *group.remarks[1:])]
    if made.unserved:
        lines.append("no plan:")
        lines += [f"  {name} ({_nodes_of(machines.get(name))}): {why}" for name, why in made.unserved.items()]
    for name in made.left_out:
        one = machines.get(name)
        lines.append(f"left out: {name} ({_nodes_of(one)}: {names_folded(one.nodes)})" if one else f"left out: {name}")
    if made.unreachable:
        lines.append("not probed, so they have no plan:")
        lines += by_reason(made.unreachable)
    if made.fewer:
        lines.append(f"one plan for all nodes is not possible, because {'; '.join(made.fewer)}")
    lines += [f"driver {up.after} on {names_folded(up.nodes)} (now {up.before}): {_saves(up)}" for up in made.upgrades]
    return "\n".join(lines)


def _asked(group: Group) -> Iterator[str]:
    """What jobs must request; the part for Kubernetes is only in the JSON, since it is too long for a line."""
    if slurm := group.constraints.get("slurm"):
        yield f"Slurm: {' '.join(slurm)}"
    if htcondor := group.constraints.get("htcondor"):
        yield f"HTCondor: {'; '.join(htcondor)}"


def _of_class(one: NodeClass | None) -> str:
    return (
        f"{one_line(one.machine)}; {count_of(len(one.nodes), 'node')}: {names_folded(one.nodes)}"
        if one
        else "its nodes"
    )


def _nodes_of(one: NodeClass | None) -> str:
    return count_of(len(one.nodes), "node") if one else "all its nodes"


def _saves(upgrade: Upgrade) -> str:
    return f"{count_of(upgrade.plans, 'plan')}, {count_of(upgrade.unserved, 'node')} without one"
