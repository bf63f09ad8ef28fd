"""Reading plans in tests."""

from __future__ import annotations

from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage


def chosen(plan: Plan) -> dict[str, str]:
    return {p.name: p.version + (f" {p.variant}" if p.variant else "") for p in plan.packages}


def package(plan: Plan, name: str) -> PlannedPackage:
    return next(p for p in plan.packages if p.name == name)


def codes(plan: Plan) -> list[str]:
    return [w.code for w in plan.warnings]
