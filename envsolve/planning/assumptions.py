"""Plans for machines whose driver or libc is not known: for the oldest that may be there, or that a plan needs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine, Platform
from envsolve.packages.client import IndexClient
from envsolve.packages.requirements import Asked
from envsolve.planning.make import make_plan
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from envsolve.planning.warnings import about_platform
from envsolve.rules.judge import as_judged, with_assumed_driver
from envsolve.rules.nvidia import Facts
from envsolve.rules.platform import assumed, libc_of
from envsolve.solve.family import Family
from envsolve.solve.limits import Limits, best_of
from envsolve.solve.outcome import PlanWarning
from envsolve.solve.preferences import parse_exclude_newer


def plan_assuming(
    asked: Asked, machines: Sequence[Machine], request: Request, catalogue: Catalogue, client: IndexClient
) -> Plan:
    """Like :func:`make_plan`, but for the oldest possible driver and libc if the machine does not state them.

    If nothing fits an old libc, the newest is assumed, and the plan says which one its files need. A plan for an old
    driver is right on every newer one, so that it has a definite status instead of ``unknown``.
    """
    plan = _for_oldest_driver(asked, machines, request, catalogue, client)
    newest = tuple(_with_newest_libc(machine, catalogue) for machine in machines)
    if plan.status != "impossible" or newest == tuple(machines):
        return plan
    # A second solve takes seconds: not where driver and GPU allow no build of the torch family anyway.
    if best_of(*family_and_limits(newest, asked, request, catalogue)) is None:
        return plan
    other = _for_oldest_driver(asked, newest, request, catalogue, client)
    if other.status == "impossible":
        return plan
    # What the machines leave open is said as if they had been planned for.
    left_open = dict.fromkeys(said for machine in machines for said in about_platform(machine.platform, other.packages))
    return replace(other, machines=tuple(machines), warnings=tuple(dict.fromkeys((*other.warnings, *left_open))))


def _with_newest_libc(machine: Machine, catalogue: Catalogue) -> Machine:
    """A Linux machine of unknown libc with the newest glibc of a known distribution."""
    platform = assumed(machine.platform)
    if platform.os != "linux" or platform.libc:
        return machine
    known = (libc_of(Platform(libc=one.libc)) for one in catalogue.distributions.values())
    newest = max(version for kind, version in filter(None, known) if kind == "glibc")
    named = replace(machine.platform or Platform(), libc=f"glibc {newest[0]}.{newest[1]}")
    return replace(machine, platform=named)


def _for_oldest_driver(
    asked: Asked, machines: Sequence[Machine], request: Request, catalogue: Catalogue, client: IndexClient
) -> Plan:
    supposed = tuple(with_assumed_driver(machine, catalogue.architectures, catalogue.drivers) for machine in machines)
    # To plan takes seconds: not for a driver on which no build of the torch family is allowed anyway.
    if supposed == tuple(machines) or best_of(*family_and_limits(supposed, asked, request, catalogue)) is None:
        return make_plan(asked, machines, request, catalogue, client)
    plan = make_plan(asked, supposed, request, catalogue, client)
    if plan.status != "ok":
        return make_plan(asked, machines, request, catalogue, client)
    text = (
        f"the machine's driver is not known; the plan assumes a driver for CUDA {_assumed(machines, supposed)} or newer"
    )
    newer = _with_newer_driver(asked, machines, plan, request, catalogue)
    hint = "give it: --driver VERSION (nvidia-smi shows the version)" + (f"; {newer}" if newer else "")
    driver = plan.driver and replace(plan.driver, have=None, mode=None)
    warnings = (*plan.warnings, PlanWarning("driver-unknown", text, hint))
    return replace(plan, machines=tuple(machines), driver=driver, warnings=warnings)


def _assumed(machines: Sequence[Machine], supposed: Sequence[Machine]) -> str:
    pairs = zip(machines, supposed, strict=True)
    found = {other.driver.cuda for one, other in pairs if one != other and other.driver and other.driver.cuda}
    return " and ".join(sorted(found))


def _with_newer_driver(
    asked: Asked, machines: Sequence[Machine], plan: Plan, request: Request, catalogue: Catalogue
) -> str | None:
    """``with driver 580.65.06 or newer: torch 2.15.0 [cu132]``; None if a newer driver gives nothing better."""
    family, limits = family_and_limits(machines, asked, replace(request, python=plan.python), catalogue)
    best = next(iter(best_of(family, limits) or ()), None)
    if best is None or best.build.package != "torch" or not best.verdict.driver_required:
        return None
    torch = next((package for package in plan.packages if package.name == "torch"), None)
    if torch is None or (Version(torch.version).public, torch.variant) == (best.build.version, best.build.variant):
        return None
    return f"with driver {best.verdict.driver_required} or newer: {best.label}"


def family_and_limits(
    machines: Sequence[Machine], asked: Asked, request: Request, catalogue: Catalogue
) -> tuple[Family, Limits]:
    """The torch family on machines, and what a request asks of it."""
    exclude_newer = parse_exclude_newer(request.exclude_newer) if request.exclude_newer else None
    judged = tuple(as_judged(machine, request.cuda, catalogue.drivers) for machine in machines)
    pythons = {machine.python for machine in machines}
    python = request.python or (pythons.pop() if len(pythons) == 1 else None)
    family = Family(catalogue, Facts.of(catalogue), judged, python, exclude_newer)
    wanted: dict[str, SpecifierSet] = {}
    # Those with markers may not hold for all machines; left out, they make more seem possible than is, never less.
    for requirement in (need.requirement for need in asked.needs if need.requirement.marker is None):
        name = canonicalize_name(requirement.name)
        if family.owns(name):
            wanted[name] = wanted.get(name, SpecifierSet()) & requirement.specifier
    return family, Limits(wanted, request.cuda)
