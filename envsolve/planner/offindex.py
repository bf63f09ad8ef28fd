"""What a user should know of wheels that are on no package index, taken or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envsolve.catalogue.model import Evidence
from envsolve.plan import Caution, PlannedPackage
from envsolve.planner.sources import Compiled
from envsolve.resolve.family import Family, Option
from envsolve.resolve.outside import Ready, torches_served
from envsolve.resolve.solve import Solution

_LISTED = (Evidence.MEASURED.value, Evidence.PUBLISHED.value)


def off_index(solution: Solution, family: Family) -> frozenset[str]:
    """The packages of a solution whose wheel is on no index."""
    places = family.catalogue.indexes
    return frozenset(
        name
        for name, chosen in solution.chosen.items()
        if (option := chosen.candidate.option) and (place := places.get(option.build.index)) and place.kind != "simple"
    )


def about_off_index(packages: Sequence[PlannedPackage], taken: frozenset[str]) -> Iterator[Caution]:
    """Where such a wheel is, and what is not known of it."""
    for package in packages:
        if package.name not in taken:
            continue
        text = f"{package.name} {package.version} is a wheel that is on no package index: {package.url}"
        if package.evidence not in _LISTED:
            text += "; that it is there is what the project's build workflow says"
        if not package.hashes:
            text += "; its sha256 is not known"
        yield Caution("off-index-wheel", text, "where it is not there, compile it: the toolchain of this plan does")


def about_elsewhere(compiled: Sequence[Compiled], torch: Option, wheels: Ready, family: Family) -> Iterator[Caution]:
    """Ready wheels of what is compiled all the same: those that were not found, and those for another torch.

    Args:
        compiled: What is compiled.
        torch: The torch of the plan.
        wheels: Those that go with it.
        family: What is published, and the machines.
    """
    version = f"torch {torch.build.version} [{torch.build.variant}]"
    for one in compiled:
        served = torches_served(one.name, family)
        if wheels.get(one.name):
            text = f"{one.name} has a ready wheel for {version}; the page of links that should name it cannot be read"
            yield Caution("ready-wheel-unread", f"{text}, or does not", "plan again where that page can be reached")
        elif served:
            span = served[0] if len(served) == 1 else f"{served[0]} to {served[-1]}"
            text = f"{one.name} has ready wheels for torch {span}, and none that goes with {version}"
            yield Caution("ready-wheel-elsewhere", text, f"ask for torch=={served[-1]}.* to compile nothing")
