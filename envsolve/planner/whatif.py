"""What another machine would give: the plan as it is, the plan after a change, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.targets import machine_from_target
from envsolve.errors import UsageError
from envsolve.index.client import IndexClient
from envsolve.machine.change import changed
from envsolve.machine.model import Machine
from envsolve.machine.target import parse_target
from envsolve.plan import Plan
from envsolve.planner.make import Choices, make_plan
from envsolve.resolve.requirements import Asked

SCHEMA: Literal["envsolve.whatif/1"] = "envsolve.whatif/1"


class Difference(msgspec.Struct, frozen=True):
    """One thing in which two plans differ.

    Attributes:
        kind: ``status``, ``conflict``, ``python``, ``flavour``, ``driver``, ``package``, ``support``, ``variable``,
            ``toolchain`` or ``warning``.
        name: Of a package, a variable or a warning; the kind itself where there is one of it in a plan.
        now: As it is; None where there is none.
        then: Likewise after the change.
    """

    kind: str
    name: str
    now: str | None
    then: str | None


class WhatIf(msgspec.Struct, frozen=True):
    """What a change to the machine would give.

    Attributes:
        change: As asked, ``driver 580``.
        now: The plan for the machines as they are; ``then`` is the one after the change.
        differences: Empty where the change gives nothing.
    """

    change: str
    now: Plan
    then: Plan
    differences: tuple[Difference, ...]
    schema: Literal["envsolve.whatif/1"] = SCHEMA


def make_what_if(
    change: str,
    asked: Asked,
    machines: Sequence[Machine],
    choices: Choices,
    catalogue: Catalogue,
    client: IndexClient,
) -> WhatIf:
    """Plan for machines as they are and for each of them changed.

    Args:
        change: In the words of a target, ``driver 580``, ``RTX 5090, python 3.12``.
        asked: The others, and the errors, are those of :func:`envsolve.planner.make.make_plan`.

    Raises:
        UsageError: The change is not understood, or is none.
    """
    said = machine_from_target(parse_target(change), catalogue)
    if not said.sources:
        raise UsageError("a question of what if supposes something", hint='name it: --what-if "driver 580"')
    after = replace(choices, python=said.python or choices.python)
    now = make_plan(asked, machines, choices, catalogue, client)
    then = make_plan(asked, [changed(machine, said) for machine in machines], after, catalogue, client)
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


def _flavour(plan: Plan) -> Mapping[str, str]:
    return {"flavour": plan.cuda} if plan.cuda else {}


def _driver(plan: Plan) -> Mapping[str, str]:
    return {"driver": plan.driver.mode} if plan.driver and plan.driver.mode else {}


def _packages(plan: Plan) -> Mapping[str, str]:
    return {package.name: package.version for package in plan.packages}


def _support(plan: Plan) -> Mapping[str, str]:
    """What each package's code can do on the GPUs, all of a package in one line."""
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
    "flavour": _flavour,
    "driver": _driver,
    "support": _support,
    "package": _packages,
    "variable": _variables,
    "toolchain": _toolchain,
    "warning": _warnings,
}
