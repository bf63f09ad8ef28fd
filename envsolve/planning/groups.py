"""Several machines: the smallest number of plans that fits all of them (``envsolve.plans/1``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.completed import machine_from_target
from envsolve.machine.model import Machine, changed
from envsolve.machine.target import parse_target
from envsolve.packages.client import IndexClient
from envsolve.packages.requirements import Asked
from envsolve.planning.assumptions import family_and_limits, plan_assuming
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from envsolve.rules.platform import assumed
from envsolve.solve.limits import Fleet, by_kind

SCHEMA: Literal["envsolve.plans/1"] = "envsolve.plans/1"
Part = frozenset[int]


class Plans(msgspec.Struct, frozen=True):
    """Plans that together fit the machines, and the machines that no plan fits.

    Attributes:
        plans: In the order of their first machines; no machine is in two of them.
        unserved: For each kind of machine that no plan fits, the impossible plan with the reason.
    """

    schema: Literal["envsolve.plans/1"] = SCHEMA
    plans: tuple[Plan, ...] = ()
    unserved: tuple[Plan, ...] = ()


def make_plans(
    asked: Asked, machines: Sequence[Machine], request: Request, catalogue: Catalogue, client: IndexClient
) -> Plans:
    """Divide machines into the smallest number of groups that have a plan each.

    A plan's files are those of one system, so that machines of several systems are never in one group. Of several
    divisions into as few groups, the one is taken whose machines lose least against a plan each. Arguments and
    errors are those of :func:`envsolve.planning.assumptions.plan_assuming`.
    """
    kinds = by_kind(machines)
    made: dict[Part, Plan] = {}

    def plan(part: Part) -> Plan:
        if part not in made:
            its = [machine for place in sorted(part) for machine in kinds[place]]
            made[part] = plan_assuming(asked, its, request, catalogue, client)
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
        # Without torch in a plan the limits of torch say nothing about which machines can share one.
        has_torch = all(_has_torch(plan(frozenset({place}))) for place in served)
        kept = [kinds[place][0] for place in served]
        fleet = Fleet(*family_and_limits(kept, asked, request, catalogue)) if has_torch else None
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
    """The division of machines into the fewest parts that work; of several the cheapest one.

    Args:
        served: The machines, each of which has a plan of its own.
        works: Whether a part has a plan: a slow question, and one whose answer for a part holds for what it contains.
        fleet: What torch allows on the machines, by their places among those served; None if torch does not matter.
    """
    # A part that failed fails in every larger one, since more machines only add limits: this prunes most divisions.
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
        # Cheapest first: the first division that works is the answer, and each question is a full solve.
        for division in sorted(_divisions(served, count, may_work), key=cost):
            if not all(map(may_work, division)):
                continue
            wrong = next((part for part in division if not works(part)), None)
            if wrong is None:
                return division
            failed.append(wrong)
    return ()


def _divisions(members: Sequence[int], count: int, may_work: Callable[[Part], bool]) -> Iterator[tuple[Part, ...]]:
    """Every way to divide members into the given number of parts, each of which may work."""

    def extended(parts: tuple[Part, ...], left: Sequence[int]) -> Iterator[tuple[Part, ...]]:
        if len(parts) + len(left) < count:
            return
        if not left:
            yield parts
            return
        first, *rest = left
        for place, part in enumerate(parts):
            larger = part | {first}
            # Only into parts that exist, and at most one new part: each division is made once, not once per order.
            if may_work(larger):
                yield from extended((*parts[:place], larger, *parts[place + 1 :]), rest)
        if len(parts) < count:
            yield from extended((*parts, frozenset({first})), rest)

    yield from extended((), members)


def _has_torch(plan: Plan) -> bool:
    return any(package.name == "torch" and package.variant for package in plan.packages)


# What another machine would give: the plan as it is, the plan after a change, and where they differ.


WHATIF_SCHEMA: Literal["envsolve.whatif/1"] = "envsolve.whatif/1"


class Difference(msgspec.Struct, frozen=True):
    """One thing in which two plans differ.

    Attributes:
        kind: ``status``, ``conflict``, ``python``, ``flavour``, ``driver``, ``package``, ``support``, ``variable``,
            ``toolchain`` or ``warning``.
        name: Of a package, a variable or a warning; the kind itself where there is one of it in a plan.
        now: The present value, or None.
        then: The value after the change, or None.
    """

    kind: str
    name: str
    now: str | None
    then: str | None


class WhatIf(msgspec.Struct, frozen=True):
    """The effect of a change to the machine.

    Attributes:
        change: As asked, ``driver 580``.
        now: The plan for the machines as they are; ``then`` is the one after the change.
        differences: Empty if the change gives nothing.
    """

    change: str
    now: Plan
    then: Plan
    differences: tuple[Difference, ...]
    schema: Literal["envsolve.whatif/1"] = WHATIF_SCHEMA


def make_what_if(
    change: str, asked: Asked, machines: Sequence[Machine], request: Request, catalogue: Catalogue, client: IndexClient
) -> WhatIf:
    """Plan for machines as they are and for each of them changed.

    Args:
        change: In the words of a target, ``driver 580``, ``RTX 5090, python 3.12``.
        asked: The others, and the errors, are those of :func:`envsolve.planning.assumptions.plan_assuming`.

    Raises:
        UsageError: The change is not understood, or changes nothing.
    """
    said = machine_from_target(parse_target(change), catalogue)
    # A change of nothing would print "no difference", which reads as an answer about the machine.
    if not said.sources:
        raise UsageError("--what-if has no value", hint='give a change: --what-if "driver 580"')
    after = replace(request, python=said.python or request.python)
    now = plan_assuming(asked, machines, request, catalogue, client)
    then = plan_assuming(asked, [changed(machine, said) for machine in machines], after, catalogue, client)
    return WhatIf(change, now, then, tuple(differences(now, then)))


def differences(now: Plan, then: Plan) -> Iterator[Difference]:
    """Where two plans differ, what matters most first."""
    for kind, said in _SAID.items():
        before, after = said(now), said(then)
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                yield Difference(kind, name, before.get(name), after.get(name))


def _status(plan: Plan) -> Mapping[str, str]:
    return {"status": plan.status}


def _conflict(plan: Plan) -> Mapping[str, str]:
    return {"conflict": "; ".join(fact.fact for fact in plan.conflict)} if plan.conflict else {}


def _python(plan: Plan) -> Mapping[str, str]:
    return {"python": plan.python} if plan.python else {}


def _variant(plan: Plan) -> Mapping[str, str]:
    return {"flavour": plan.cuda} if plan.cuda else {}


def _driver(plan: Plan) -> Mapping[str, str]:
    return {"driver": plan.driver.mode} if plan.driver and plan.driver.mode else {}


def _packages(plan: Plan) -> Mapping[str, str]:
    return {package.name: package.version for package in plan.packages}


def _support(plan: Plan) -> Mapping[str, str]:
    """The code levels of each package on the GPUs, all of a package in one line."""
    lines: dict[str, list[str]] = {}
    for one in plan.support:
        lines.setdefault(one.package, []).append(f"{' '.join(filter(None, (one.level, one.code)))} on {one.gpu}")
    return {package: ", ".join(said) for package, said in lines.items()}


def _variables(plan: Plan) -> Mapping[str, str]:
    return plan.environment


def _toolchain(plan: Plan) -> Mapping[str, str]:
    return {"nvcc": plan.toolchain.nvcc} if plan.toolchain and plan.toolchain.nvcc else {}


def _warnings(plan: Plan) -> Mapping[str, str]:
    said: dict[str, list[str]] = {}
    for caution in plan.warnings:
        if caution.code == "index-unreachable":  # tells of the network, and nothing of the machine
            continue
        said.setdefault(caution.code, []).append(caution.message)
    return {code: "; ".join(messages) for code, messages in said.items()}


_SAID = {
    "status": _status,
    "conflict": _conflict,
    "python": _python,
    "flavour": _variant,  # the name that this kind has in the JSON of a what-if
    "driver": _driver,
    "support": _support,
    "package": _packages,
    "variable": _variables,
    "toolchain": _toolchain,
    "warning": _warnings,
}
