"""Which of several machines cost the others something, and what those would have without them."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from envsolve.plan import Caution
from envsolve.resolve.family import Family, Option, in_order
from envsolve.resolve.fleet import Fleet
from envsolve.resolve.limits import Limits
from envsolve.resolve.solve import Solution


def about_binding(solution: Solution, family: Family, limits: Limits) -> Iterator[Caution]:
    """Machines without which a better torch would be chosen; nothing where something else decides."""
    torch = solution.chosen.get("torch")
    chosen = torch.candidate.option if torch else None
    if chosen is None or len(family.machines) < 2:
        return
    newest = max(Version(option.version.public) for option in family.judged("torch"))
    if chosen.verdict.triton and Version(chosen.version.public) == newest:
        return  # nobody could have more
    fleet = Fleet(family, limits)
    best = fleet.best(range(len(family.machines)))
    if best is None or best.identity != chosen.identity:
        return
    for binding in fleet.bindings(lambda other: _gain(chosen, other) is not None):
        text = f"without {binding.held}, {_gain(chosen, binding.torch)} would run on {binding.others}"
        yield Caution("machine-binds", text, "plan for it apart from the others")


def _gain(chosen: Option, other: Option) -> str | None:
    """What another torch has over the chosen one; None where it is no better, or only of another flavour."""
    if in_order((chosen, other), "torch")[0] is not other:
        return None
    if Version(other.version.public) > Version(chosen.version.public):
        return other.label
    return f"{other.label} with its Triton" if other.verdict.triton and not chosen.verdict.triton else None
