"""Where no single change helps: the limits that must be lifted together, the dearest of them kept where they can be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from envsolve.resolve.family import Family
from envsolve.resolve.limits import Limit, Limits, best_of, best_under, loosened
from envsolve.resolve.outcome import Remedy
from envsolve.resolve.remedies import GLIBC_OF_REMEDY, PYTHONS, demanded, driver_remedy, named

# What costs most to change comes first: a card, a driver; and what was asked for before the place where it runs.
_DEAREST = ("gpus", "driver", "asked", "flavour", "cutoff", "libc", "python")


def together(family: Family, limits: Limits, every: Sequence[Limit]) -> Remedy | None:
    """The changes that are needed at once, none of which can be left out; None where no changes help.

    Args:
        family: The torch family on the machines.
        limits: What the request asks of it.
        every: All limits, under which nothing fits.
    """
    kept: list[Limit] = []
    for limit in sorted(every, key=lambda limit: _DEAREST.index(limit.kind)):
        if best_under(family, limits, [*kept, limit]):
            kept.append(limit)
    best = best_under(family, limits, kept)
    if not best:  # also where nothing that was asked for is left
        return None
    given_up = sorted((limit for limit in every if limit not in kept), key=lambda limit: -_DEAREST.index(limit.kind))
    loose, rest = loosened(family, limits, kept)
    changes = dict.fromkeys(_change(limit, loose, rest, limits) for limit in given_up)
    return Remedy("change together: " + "; ".join(changes), named(best))


def _change(limit: Limit, loose: Family, rest: Limits, limits: Limits) -> str:
    """What lifting one limit means, where the others are lifted, too."""
    if limit.kind in ("asked", "flavour"):
        return f"relax {demanded(limit, limits)}"
    if limit.kind == "cutoff":
        return "leave out --exclude-newer"
    if limit.kind == "libc":
        return f"run in a container, or on a system, with {GLIBC_OF_REMEDY} or newer"
    if limit.kind == "python":
        return f"use Python {', '.join(p for p in PYTHONS if best_of(replace(loose, python=p), rest))}"
    if limit.kind == "driver":
        remedy = next(driver_remedy(loose, partial(best_of, limits=rest)), None)
        return remedy.action if remedy else "use another driver"
    return "use another GPU" if limit.name else "plan for a machine with a GPU"
