"""The solve for one environment: from requirements to one candidate per package, or the cause of failure."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec
from resolvelib import ResolutionImpossible, ResolutionTooDeep
from resolvelib.structs import RequirementInformation, State

from envsolve.errors import EnvsolveError
from envsolve.packages.requirements import Need
from envsolve.solve.claims import inevitable, limits_among, needing_torch, others_than, settled
from envsolve.solve.needs import (
    CUDA_MAJOR,
    AnyCandidate,
    AnyNeed,
    Candidate,
    ClaimNeed,
    Learnt,
    LimitNeed,
    PackageNeed,
    VariantCandidate,
    VariantNeed,
)
from envsolve.solve.pins import Cause, Pins
from envsolve.solve.provider import Provider
from envsolve.solve.search import AstrayError, LearningSearch, Search, TooLongError
from envsolve.solve.search import Budget as Budget


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
    """The solver's choice.

    Attributes:
        chosen: The packages by name.
        variant: The CUDA variant that they agree on; None if no package has one.
        rounds: How many rounds the solver took.
    """

    chosen: Mapping[str, Chosen]
    variant: str | None
    rounds: int


class UnsolvableError(Exception):
    """No set of candidates satisfies all needs.

    Attributes:
        by_pins: Whether the causes are pins, or what these need, that exclude each other whatever else is chosen.
    """

    def __init__(self, causes: Sequence[Cause], *, by_pins: bool = False) -> None:
        super().__init__("no set of packages satisfies the request")
        self.causes = tuple(causes)
        self.by_pins = by_pins


Solve = Callable[[Sequence[Need], Budget], Solution]
"""Solves needs within a budget, as a plan does."""


def solve(provider: Provider, needs: Sequence[Need], variant: str | None, budget: Budget | None = None) -> Solution:
    """Resolve the whole transitive graph.

    Args:
        provider: Joins catalogue, indexes and rules.
        needs: The requirements.
        variant: A CUDA variant that everything must have (``cu126``, ``cpu``); None leaves it to the solve.
        budget: What the searches may take; the usual one if None.

    Raises:
        UnsolvableError: Nothing satisfies the needs.
        IndexUnavailableError: An index failed.
        EnvsolveError: No answer within the conflicts that the solver may meet.
    """
    provider.budget = budget or Budget()
    roots: list[AnyNeed] = [n for need in needs for n in provider.needs_in(need.requirement, "", need.origin)]
    pins = Pins(provider, [need for need in roots if isinstance(need, PackageNeed)])
    if pins.causes:
        raise UnsolvableError(pins.causes, by_pins=True)
    if not provider.family.options("torch") and (causes := [Cause(*one) for one in needing_torch(provider, roots)]):
        raise UnsolvableError(causes)
    wanted = [VariantNeed(frozenset({variant}))] if variant else []

    def ways(limits: Sequence[AnyNeed]) -> list[list[AnyNeed]]:
        """The best torch alone, any that goes with the companions; the last are all there is."""
        limited = [*roots, *wanted, *limits]
        paired = provider.paired_torch([*roots, *pins.following, *limits])
        return [[*limited, torch] for torch in paired] or [limited]

    try:
        found = _best(provider, ways)
    except ResolutionImpossible as impossible:
        raise UnsolvableError([Cause(cause.requirement, cause.parent) for cause in impossible.causes]) from None
    except TooLongError as endless:
        hint = "pin some of the requirements; begin with those without a version"
        raise EnvsolveError(
            f"the search was stopped without an answer, because too many versions conflict{_last(endless)}", hint=hint
        ) from None
    return _solution(found.state.mapping, _edges(found.state), found.rounds)


def _last(endless: TooLongError) -> str:
    """The last conflict of searches that came to no end, in words."""
    parents = {c.parent.label: c.requirement.text for c in endless.causes if isinstance(c.parent, Candidate)}
    said = [f"{label} needs {text}" for label, text in list(parents.items())[:2]]
    return f"; the last conflict: {' and '.join(said)}" if said else ""


#: The alternatives of a request with more limits, the preferred first: the last allows all that the others do.
_Ways = Callable[[Sequence[AnyNeed]], list[list[AnyNeed]]]


def _best(provider: Provider, ways_with: _Ways) -> Found:
    """The first answer in which no two packages claim the same thing.

    Few answers have a clash, so the first search does not look for any. If there is one, the CUDA majors of the
    clashing libraries are tried before all else: a search that meets the clash after it has settled on a torch goes
    back through the versions of every other package before it gives up that torch.

    Raises:
        ResolutionImpossible: No way has an answer.
        UnsolvableError: All answers have a clash.
    """
    provider.claimed = "nothing"
    ways = ways_with(())
    found = _first(provider, ways)
    if found is None:
        return search_without_barring(provider, ways[-1])
    found, ways = _within_limits(provider, found, ways, ways_with)
    clashes = _clashes(provider, found)
    if not clashes:
        return found
    clash = UnsolvableError(list(_clash_causes(provider, found, next(iter(clashes)))))
    edges = [(edge.parent, edge.need) for edge in _edges(found.state)]
    ways = [[*way, *settled(way, found.state.mapping, provider.family, edges)] for way in ways]
    leading = _leading_to(provider, found, clashes)
    ways = [[*way, *inevitable(provider, way, leading)] for way in ways]
    try:
        return _without_clash(provider, ways, clashes)
    except (ResolutionImpossible, TooLongError):
        raise clash from None


def _within_limits(
    provider: Provider, found: Found, ways: list[list[AnyNeed]], ways_with: _Ways
) -> tuple[Found, list[list[AnyNeed]]]:
    """An answer in which modules are as the packages beside them require without declaring it, if there is one.

    The package keeps the version that it has, and the module gives way: ``torchvision<0.17`` beside basicsr, and torch
    with it. A search that met this as a clash would try the versions of all packages beside each torchvision.

    Returns:
        The answer, and the alternatives that it is the first of.
    """
    limits: list[AnyNeed] = []
    with contextlib.suppress(TooLongError):
        while new := [limit for limit in limits_among(_claims(provider, found)) if limit not in limits]:
            stricter = ways_with([*limits, *new])
            if (again := _first(provider, stricter)) is None:
                # A module that cannot be so has the others beside it: that bars the packages that require it so.
                barred = [others_than(limit.text) for limit in new if not _first(provider, ways_with([*limits, limit]))]
                return found, ways_with([*limits, *barred])
            found, ways, limits = again, stricter, [*limits, *new]
    return found, ways


def _without_clash(provider: Provider, ways: Sequence[Sequence[AnyNeed]], clashes: Mapping[str, list[str]]) -> Found:
    provider.claimed = "all"
    for major in clashes.get(CUDA_MAJOR, ())[1:]:
        variants = provider.family.variants_of(int(major)) & {*provider.family.variants}
        if variants and (found := _first(provider, [[*way, VariantNeed(variants)] for way in ways])):
            return found
    found = _first(provider, ways)
    if found is None and CUDA_MAJOR in clashes:
        # Libraries of two majors lie in different directories and mostly work, so a warning will do.
        provider.claimed = "files"
        found = _first(provider, [[need for need in way if need.key != CUDA_MAJOR] for way in ways])
    if found is None:
        raise ResolutionImpossible([])
    return found


def _first(provider: Provider, ways: Sequence[Sequence[AnyNeed]]) -> Found | None:
    """The answer for the first alternative whose needs can be satisfied; None if none can."""
    for roots in ways:
        # Not resolvelib's Resolver: what it does after the resolution recurses without end over an orphaned cycle.
        with contextlib.suppress(ResolutionImpossible):
            return search(provider, roots)
    return None


def _clashes(provider: Provider, found: Found) -> dict[str, list[str]]:
    """The claims of several packages of an answer, with the holders, torch's before the others."""
    held: dict[str, dict[str, None]] = {}
    for claim, _ in _claims(provider, found):
        held.setdefault(claim.key, {})[claim.holder] = None
    several = {key: [*holders] for key, holders in held.items() if len(holders) > 1}
    return dict(sorted(several.items(), key=lambda pair: pair[0] == CUDA_MAJOR))


def _claims(provider: Provider, found: Found) -> Iterator[tuple[ClaimNeed, Candidate]]:
    """The claims in an answer, torch's before the others; what backtracking left behind has none."""
    reached = _reached(_children(_edges(found.state)))
    candidates = [c for key, c in found.state.mapping.items() if key in reached and isinstance(c, Candidate)]
    for candidate in sorted(candidates, key=lambda c: c.name != "torch"):
        yield from ((claim, candidate) for claim in provider.claims(candidate))


def _leading_to(provider: Provider, found: Found, clashes: Collection[str]) -> set[str]:
    """The packages that clash, and all by which the request leads to them."""
    edges = _edges(found.state)
    waiting = [candidate.key for claim, candidate in _claims(provider, found) if claim.key in clashes]
    leading: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key not in leading:
            leading.add(key)
            waiting += [edge.parent for edge in edges if edge.need.key == key and edge.parent]
    return leading


def _clash_causes(provider: Provider, found: Found, key: str) -> Iterator[Cause]:
    """Two packages that claim the same, who requires them, and what of the request leads there."""
    held: dict[str, tuple[ClaimNeed, Candidate]] = {}
    for claim, candidate in _claims(provider, found):
        if claim.key == key:
            held.setdefault(claim.holder, (claim, candidate))
    edges = _edges(found.state)
    for claim, candidate in held.values():
        yield Cause(claim, candidate)
        told, waiting = {candidate.key}, [candidate.key]
        while waiting:
            wanted = waiting.pop(0)
            for edge in (edge for edge in edges if edge.need.key == wanted and isinstance(edge.need, PackageNeed)):
                yield Cause(edge.need, found.state.mapping[edge.parent] if edge.parent else None)
                if edge.parent and edge.parent not in told:
                    told.add(edge.parent)
                    waiting.append(edge.parent)


class _Edge(msgspec.Struct, frozen=True):
    """A need and who has it: a key of the solution, or None for the request."""

    parent: str | None
    need: AnyNeed


def _edges(state: State[AnyNeed, AnyCandidate, str]) -> list[_Edge]:
    """The needs of the request and of chosen candidates, without those that backtracking left behind."""
    edges = []
    for criterion in state.criteria.values():
        for need, parent in criterion.information:
            if isinstance(need, LimitNeed):
                continue
            if parent is None:
                edges.append(_Edge(None, need))
            elif state.mapping.get(parent.key) == parent:
                edges.append(_Edge(parent.key, need))
    return edges


def _children(edges: Sequence[_Edge]) -> Mapping[str | None, Sequence[_Edge]]:
    """The needs by who has them."""
    children: dict[str | None, list[_Edge]] = {}
    for edge in edges:
        children.setdefault(edge.parent, []).append(edge)
    return children


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
    children = _children(edges)
    askers: dict[str, list[_Edge]] = {}
    for edge in edges:
        if isinstance(edge.need, PackageNeed):
            askers.setdefault(edge.need.name, []).append(edge)
    candidates = {key: mapping[key] for key in sorted(_reached(children))}
    # A package has a candidate for itself and one for each of its extras.
    packages: dict[str, list[Candidate]] = {}
    for candidate in candidates.values():
        if isinstance(candidate, Candidate):
            packages.setdefault(candidate.name, []).append(candidate)
    chosen = {}
    for name, (base, *with_extra) in packages.items():
        needs = [edge.need for own in (base, *with_extra) for edge in children.get(own.key, ())]
        requires = {need.name for need in needs if isinstance(need, PackageNeed)} - {name}
        why = dict.fromkeys(filter(None, (_reason(edge, candidates) for edge in askers.get(name, ()))))
        extras = tuple(one.extra for one in with_extra if one.extra)
        chosen[name] = Chosen(base, extras, tuple(sorted(requires)), tuple(why))
    variants = [c.variant for c in candidates.values() if isinstance(c, VariantCandidate)]
    return Solution(chosen, variants[0] if variants else None, rounds)


def _reason(edge: _Edge, candidates: Mapping[str, AnyCandidate]) -> str | None:
    """The requirement behind an edge, in words; None if its package is no longer part of the solution."""
    if edge.parent is None:
        return f"asked: {edge.need.text}" + (f" ({edge.need.origin})" if isinstance(edge.need, PackageNeed) else "")
    parent = candidates.get(edge.parent)
    return f"{parent.label} needs {edge.need.text}" if isinstance(parent, Candidate) else None


_FIRST, _LAST = 32, 4096  # dead ends that the first search may meet, and the last one
_MAX_ROUNDS = 200_000


class Found(msgspec.Struct, frozen=True):
    """The end of a search, and how many rounds it and those before it took."""

    state: State[AnyNeed, AnyCandidate, str]
    rounds: int


def search(provider: Provider, roots: Sequence[AnyNeed]) -> Found:
    """Resolve the whole transitive graph.

    Raises:
        ResolutionImpossible: Nothing satisfies the needs; its causes leave out what was barred.
        TooLongError: That could not be found out.
    """
    provider.learnt = Learnt()
    try:
        return _searched(LearningSearch, provider, roots)
    finally:
        provider.learnt = Learnt()


def search_without_barring(provider: Provider, roots: Sequence[AnyNeed]) -> Found:
    """Search again in more rounds, if :func:`search` found nothing.

    Raises:
        ResolutionImpossible: Nothing satisfies the needs; the causes are of all candidates that were tried.
        TooLongError: That could not be found out.
    """
    return _searched(Search, provider, roots)


def _searched(kind: type[Search], provider: Provider, roots: Sequence[AnyNeed]) -> Found:
    dead_ends: Counter[str] = Counter()
    allowed, rounds = _FIRST, 0
    causes: Sequence[RequirementInformation[AnyNeed, AnyCandidate]] = ()
    may_forget = True
    while allowed <= _LAST:
        attempt = kind(provider, Counter(dead_ends), allowed, roots, may_forget=may_forget)
        try:
            state = attempt.resolve(roots, max_rounds=_MAX_ROUNDS)
        except (AstrayError, ResolutionTooDeep):
            dead_ends += attempt.dead_ends
            allowed *= 2
            rounds += attempt.rounds
            causes = attempt.causes
        else:
            if not attempt.has_forgotten or _is_whole(provider, state, roots):
                return Found(state, rounds + attempt.rounds)
            may_forget = False
    raise TooLongError(causes)


def _is_whole(provider: Provider, state: State[AnyNeed, AnyCandidate, str], roots: Sequence[AnyNeed]) -> bool:
    """Whether everything that is needed is in an answer."""
    waiting, seen = list(roots), set[str]()
    while waiting:
        need = waiting.pop()
        chosen = state.mapping.get(need.key)
        if chosen is None or not provider.is_satisfied_by(need, chosen):
            return False
        if need.key not in seen:
            seen.add(need.key)
            waiting += provider.get_dependencies(chosen)
    return True
