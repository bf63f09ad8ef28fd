"""The solve: what is asked, for one environment -> one candidate per package, or the clash that forbids it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from resolvelib import ResolutionImpossible
from resolvelib.structs import State

from envsolve.errors import EnvsolveError
from envsolve.resolve.needs import (
    AnyCandidate,
    AnyNeed,
    Candidate,
    FlavourCandidate,
    FlavourNeed,
    PackageNeed,
)
from envsolve.resolve.provider import Provider
from envsolve.resolve.requirements import Need
from envsolve.resolve.search import Found, TooLongError, search, search_without_barring


class Chosen(msgspec.Struct, frozen=True):
    """One package of a solution.

    Attributes:
        requires: Names of the packages it depends on, sorted.
        why: ``torch 2.9.1 needs sympy>=1.13.3``, ``asked on the command line``.
    """

    candidate: Candidate
    extras: tuple[str, ...]
    requires: tuple[str, ...]
    why: tuple[str, ...]


class Solution(msgspec.Struct, frozen=True):
    """What the solver chose.

    Attributes:
        chosen: The packages by name.
        flavour: The CUDA flavour that they agree on; None where none has one.
        rounds: How many rounds the solver took.
    """

    chosen: Mapping[str, Chosen]
    flavour: str | None
    rounds: int


class Clash(msgspec.Struct, frozen=True):
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
        EnvsolveError: No answer within the conflicts that the solver may meet.
    """
    roots: list[AnyNeed] = [n for need in needs for n in provider.needs_in(need.requirement, "", need.origin)]
    paired = provider.paired_torch(roots)
    if flavour:
        roots.append(FlavourNeed(frozenset({flavour})))
    # The best torch alone, any that goes with the companions; the last are all that there is.
    ways = [[*roots, torch] for torch in paired] or [roots]
    try:
        found = next((found for way in ways if (found := _found(provider, way)) is not None), None)
        found = found or search_without_barring(provider, ways[-1])
    except ResolutionImpossible as impossible:
        raise UnsolvableError([Clash(cause.requirement, cause.parent) for cause in impossible.causes]) from None
    except TooLongError:
        hint = "pin some of the requirements, the most general ones first"
        raise EnvsolveError("no answer: too many versions contradict each other", hint=hint) from None
    return _solution(found.state.mapping, _edges(found.state), found.rounds)


def _found(provider: Provider, roots: Sequence[AnyNeed]) -> Found | None:
    """What satisfies needs; None where nothing does."""
    # Not resolvelib's Resolver: what it does after the resolution recurses without end over an orphaned cycle.
    try:
        return search(provider, roots)
    except ResolutionImpossible:
        return None


class _Edge(msgspec.Struct, frozen=True):
    """A need and who has it: a key of the solution, or None for the request."""

    parent: str | None
    need: AnyNeed


def _edges(state: State[AnyNeed, AnyCandidate, str]) -> list[_Edge]:
    """The needs of the request and of chosen candidates; those that backtracking left behind are not among them."""
    edges = []
    for criterion in state.criteria.values():
        for need, parent in criterion.information:
            if parent is None:
                edges.append(_Edge(None, need))
            elif state.mapping.get(parent.key) == parent:
                edges.append(_Edge(parent.key, need))
    return edges


def _reached(children: Mapping[str | None, Sequence[_Edge]]) -> set[str]:
    """Keys that the request leads to."""
    reached: set[str] = set()
    waiting: list[str | None] = [None]
    while waiting:
        for edge in children.get(waiting.pop(), ()):
            if edge.need.key not in reached:
                reached.add(edge.need.key)
                waiting.append(edge.need.key)
    return reached


def _solution(mapping: Mapping[str, AnyCandidate], edges: Sequence[_Edge], rounds: int) -> Solution:
    children: dict[str | None, list[_Edge]] = {}
    askers: dict[str, list[_Edge]] = {}
    for edge in edges:
        children.setdefault(edge.parent, []).append(edge)
        if isinstance(edge.need, PackageNeed):
            askers.setdefault(edge.need.name, []).append(edge)
    candidates = {key: mapping[key] for key in sorted(_reached(children))}
    keys: dict[str, list[str]] = {}
    for key, candidate in candidates.items():
        if isinstance(candidate, Candidate):
            keys.setdefault(candidate.name, []).append(key)
    chosen = {}
    for name, own in keys.items():
        base, *stand_ins = (c for key in own if isinstance(c := candidates[key], Candidate))
        needs = (edge.need for key in own for edge in children.get(key, ()))
        requires = {need.name for need in needs if isinstance(need, PackageNeed)} - {name}
        why = dict.fromkeys(_reason(edge, candidates) for edge in askers.get(name, ()))
        extras = tuple(c.extra for c in stand_ins if c.extra)
        chosen[name] = Chosen(base, extras, tuple(sorted(requires)), tuple(w for w in why if w))
    flavours = [c.variant for c in candidates.values() if isinstance(c, FlavourCandidate)]
    return Solution(chosen, flavours[0] if flavours else None, rounds)


def _reason(edge: _Edge, candidates: Mapping[str, AnyCandidate]) -> str | None:
    """Who needs a package, in words; None where that is no longer part of the solution."""
    if edge.parent is None:
        return f"asked: {edge.need.text}" + (f" ({edge.need.origin})" if isinstance(edge.need, PackageNeed) else "")
    parent = candidates.get(edge.parent)
    return f"{parent.label} needs {edge.need.text}" if isinstance(parent, Candidate) else None
