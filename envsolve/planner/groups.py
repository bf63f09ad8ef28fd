"""Several machines, several plans: the smallest number of plans that serves all of them (``envsolve.plans/1``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.catalogue.load import Catalogue
from envsolve.compat.facts import Facts
from envsolve.compat.platform import assumed
from envsolve.compat.settle import as_judged
from envsolve.index.client import IndexClient
from envsolve.machine.model import Machine
from envsolve.plan import Plan
from envsolve.planner.make import Choices, make_plan
from envsolve.resolve.cutoff import cutoff_of
from envsolve.resolve.family import Family
from envsolve.resolve.fleet import Fleet, by_kind
from envsolve.resolve.limits import Limits
from envsolve.resolve.requirements import Asked

SCHEMA: Literal["envsolve.plans/1"] = "envsolve.plans/1"
Part = frozenset[int]


class Plans(msgspec.Struct, frozen=True):
    """Plans that together serve machines, and what none can serve.

    Attributes:
        plans: In the order of their first machines; no machine is in two of them.
        unserved: For each kind of machine that nothing published serves, the impossible plan that says why.
    """

    schema: Literal["envsolve.plans/1"] = SCHEMA
    plans: tuple[Plan, ...] = ()
    unserved: tuple[Plan, ...] = ()


def make_plans(
    asked: Asked, machines: Sequence[Machine], choices: Choices, catalogue: Catalogue, client: IndexClient
) -> Plans:
    """Divide machines into the smallest number of groups that have a plan each.

    A plan's files are those of one system, so that machines of several systems are never in one group. Of several
    divisions into as few groups the one is taken whose machines lose least against a plan for each alone. Arguments and
    errors are those of :func:`envsolve.planner.make.make_plan`.
    """
    kinds = by_kind(machines)
    made: dict[Part, Plan] = {}

    def plan(part: Part) -> Plan:
        if part not in made:
            its = [machine for place in sorted(part) for machine in kinds[place]]
            made[part] = make_plan(asked, its, choices, catalogue, client)
        return made[part]

    def works(part: Part) -> bool:
        return plan(part).status != "impossible"

    groups: list[Part] = []
    unserved: list[Part] = []
    for members in _by_system(kinds):
        if works(frozenset(members)):
            groups.append(frozenset(members))
            continue
        alone = [frozenset({place}) for place in members]
        served = [place for part, place in zip(alone, members, strict=True) if works(part)]
        has_torch = all(_has_torch(plan(frozenset({place}))) for place in served)
        fleet = _fleet([kinds[place][0] for place in served], asked, choices, catalogue) if has_torch else None
        groups += _smallest(served, works, fleet)
        unserved += [part for part in alone if not works(part)]
    return Plans(
        plans=tuple(plan(part) for part in sorted(groups, key=min)),
        unserved=tuple(plan(part) for part in sorted(unserved, key=min)),
    )


def _by_system(kinds: Sequence[Sequence[Machine]]) -> Collection[Sequence[int]]:
    """The kinds of machines of each system, by their places."""
    systems: dict[tuple[str | None, str | None], list[int]] = {}
    for place, (machine, *_) in enumerate(kinds):
        platform = assumed(machine.platform)
        systems.setdefault((platform.os, platform.arch), []).append(place)
    return systems.values()


def _smallest(served: Sequence[int], works: Callable[[Part], bool], fleet: Fleet | None) -> tuple[Part, ...]:
    """The division of machines into the fewest parts that work; of several the one that costs least.

    Args:
        served: The machines, each of which works alone.
        works: Whether a part has a plan: a slow question, and one whose answer for a part holds for what it contains.
        fleet: What torch alone says of the machines, by their places among those served; None where torch has no say.
    """
    failed: list[Part] = []
    place_of: Mapping[int, int] = {machine: place for place, machine in enumerate(served)}

    def may_work(part: Part) -> bool:
        shared = fleet is None or fleet.best([place_of[machine] for machine in sorted(part)]) is not None
        return shared and not any(other <= part for other in failed)

    def cost(division: tuple[Part, ...]) -> int:
        if fleet is None:
            return 0
        return sum(fleet.loss([place_of[machine] for machine in sorted(part)]) for part in division)

    for count in range(1, len(served) + 1):
        for division in sorted(_divisions(served, count, may_work), key=cost):
            if not all(map(may_work, division)):
                continue
            wrong = next((part for part in division if not works(part)), None)
            if wrong is None:
                return division
            failed.append(wrong)
    return ()


def _divisions(members: Sequence[int], count: int, may_work: Callable[[Part], bool]) -> Iterator[tuple[Part, ...]]:
    """Every way to divide members into that many parts of which each may work."""

    def extended(parts: tuple[Part, ...], left: Sequence[int]) -> Iterator[tuple[Part, ...]]:
        if len(parts) + len(left) < count:
            return
        if not left:
            yield parts
            return
        first, *rest = left
        for place, part in enumerate(parts):
            larger = part | {first}
            if may_work(larger):
                yield from extended((*parts[:place], larger, *parts[place + 1 :]), rest)
        if len(parts) < count:
            yield from extended((*parts, frozenset({first})), rest)

    yield from extended((), members)


def _fleet(machines: Sequence[Machine], asked: Asked, choices: Choices, catalogue: Catalogue) -> Fleet:
    cutoff = cutoff_of(choices.exclude_newer) if choices.exclude_newer else None
    judged = tuple(as_judged(machine, choices.cuda, catalogue.drivers) for machine in machines)
    pythons = {machine.python for machine in machines}
    python = choices.python or (pythons.pop() if len(pythons) == 1 else None)
    family = Family(catalogue, Facts.of(catalogue), judged, python, cutoff)
    wanted: dict[str, SpecifierSet] = {}
    # Those with markers may not hold for all machines; left out, they make more seem possible than is, never less.
    for requirement in (need.requirement for need in asked.needs if need.requirement.marker is None):
        name = canonicalize_name(requirement.name)
        if family.owns(name):
            wanted[name] = wanted.get(name, SpecifierSet()) & requirement.specifier
    return Fleet(family, Limits(wanted, choices.cuda))


def _has_torch(plan: Plan) -> bool:
    return any(package.name == "torch" and package.variant for package in plan.packages)
