"""The solve: what is asked, for one environment -> one candidate per package, or the clash that forbids it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from resolvelib import BaseReporter, ResolutionImpossible, Resolver
from resolvelib.resolvers import Result

from envsolve.resolve.needs import (
    FLAVOUR,
    AnyCandidate,
    AnyNeed,
    Candidate,
    FlavourCandidate,
    FlavourNeed,
    PackageNeed,
)
from envsolve.resolve.provider import Provider
from envsolve.resolve.requirements import Need

_MAX_ROUNDS = 200_000


@dataclass(frozen=True, slots=True)
class Chosen:
    """One package of a solution.

    Attributes:
        requires: Names of the packages it depends on, sorted.
        why: ``torch 2.9.1 needs sympy>=1.13.3``, ``asked on the command line``.
    """

    candidate: Candidate
    extras: tuple[str, ...]
    requires: tuple[str, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """The packages by name, and the flavour they agree on (None where none has one)."""

    chosen: Mapping[str, Chosen]
    flavour: str | None


@dataclass(frozen=True, slots=True)
class Clash:
    """One need that takes part in a conflict, and who has it (None: the request itself)."""

    need: AnyNeed
    parent: AnyCandidate | None


class UnsolvableError(Exception):
    """No set of candidates satisfies all needs."""

    def __init__(self, clashes: Sequence[Clash]) -> None:
        super().__init__("no set of packages satisfies the request")
        self.clashes = tuple(clashes)


def solve(provider: Provider, needs: Sequence[Need], flavour: str | None) -> Solution:
    """Resolve the whole transitive graph.

    Args:
        provider: Joins catalogue, indexes and rules.
        needs: What is asked.
        flavour: A CUDA flavour that everything must have (``cu126``, ``cpu``); None leaves it to the solve.

    Raises:
        UnsolvableError: Nothing satisfies the needs.
        IndexUnavailableError: An index failed.
    """
    roots: list[AnyNeed] = [n for need in needs for n in provider.needs_in(need.requirement, "", need.origin)]
    if flavour:
        roots.append(FlavourNeed(flavour))
    resolver: Resolver[AnyNeed, AnyCandidate, str] = Resolver(provider, BaseReporter())
    try:
        result = resolver.resolve(roots, max_rounds=_MAX_ROUNDS)
    except ResolutionImpossible as impossible:
        raise UnsolvableError([Clash(c.requirement, c.parent) for c in impossible.causes]) from None
    return _solution(result)


def _solution(result: Result[AnyNeed, AnyCandidate, str]) -> Solution:
    chosen = {}
    for key, candidate in sorted(result.mapping.items()):
        if not isinstance(candidate, Candidate) or candidate.extra:
            continue
        stand_ins = [k for k, c in result.mapping.items() if isinstance(c, Candidate) and c.name == key]
        extras = tuple(sorted(k.partition("[")[2].rstrip("]") for k in stand_ins if k != key))
        children = {child.partition("[")[0] for k in stand_ins for child in result.graph.iter_children(k) if child}
        requires = tuple(sorted(children - {key, FLAVOUR}))
        why = tuple(dict.fromkeys(w for k in stand_ins for w in _reasons(result, k)))
        chosen[key] = Chosen(candidate, extras, requires, why)
    flavours = [c.variant for c in result.mapping.values() if isinstance(c, FlavourCandidate)]
    return Solution(chosen, flavours[0] if flavours else None)


def _reasons(result: Result[AnyNeed, AnyCandidate, str], key: str) -> Iterator[str]:
    """Who needs a package, in words; parents that lost their place while backtracking are left out."""
    for entry in result.criteria[key].information:
        need, parent = entry.requirement, entry.parent
        if not isinstance(need, PackageNeed):
            continue
        if parent is None:
            yield f"asked: {need.text} ({need.origin})"
        elif result.mapping.get(parent.key) == parent and isinstance(parent, Candidate):
            yield f"{parent.label} needs {need.text}"
