"""The search of the solve: resolvelib's, less what it asks again and again, begun anew where it goes astray."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec
from resolvelib import BaseReporter, ResolutionTooDeep
from resolvelib.resolvers import Criterion, RequirementsConflicted, Resolution
from resolvelib.structs import RequirementInformation, State, build_iter_view

from envsolve.solve.needs import AnyCandidate, AnyNeed
from envsolve.solve.provider import Provider

# Resolvelib asks in every round whether every package's choice still satisfies all that is needed of it, and how
# urgent every open package is: the square of the number of packages, twice. A criterion of its is replaced, never
# changed, so an answer holds as long as the criterion is the same object.
#
# A search that settled the packages in an unlucky order tries the versions of one against those of another, all of
# them, before it comes back to the one that decides. So a search that met many dead ends ends itself, and the next one
# settles first the packages for which no version was left, and those that brought them in. Each search may meet twice
# as many dead ends as the one before.
#
# A candidate that contradicts the roots by itself is in no solution, whatever else is chosen: it is barred for good,
# and so is every candidate that then has no version left of something that it needs. Resolvelib alone would find that
# out anew for each version of everything that was settled before.


_Criterion = Criterion[AnyNeed, AnyCandidate]
_Information = RequirementInformation[AnyNeed, AnyCandidate]


# What one solve may take. A plan takes some hundred rounds of about 2 ms. The clock alone would give other answers on a
# busy machine: it counts only after the least number of rounds, or if even these take twice as long, and a second is
# worth less where more programs run than there are processors.
SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 60.0, 5_000, 30_000
_PATIENCE = 2
_FIRST, _LAST = 32, 4096  # dead ends that the first search may meet, and the last one
_MAX_ROUNDS = 200_000
# Two choices could in turn drop what speaks against the other, again and again.
_MAX_REMOVALS = 500


class TooLongError(Exception):
    """No search came to an end.

    Attributes:
        causes: The last conflict that a search met.
    """

    def __init__(self, causes: Sequence[_Information]) -> None:
        super().__init__("no search ended in time")
        self.causes = tuple(causes)


class Budget:
    """The rounds and the time that the searches of one solve may take.

    Attributes:
        rounds: Those that were taken.
    """

    def __init__(self, seconds: float = SECONDS, least: int = LEAST_ROUNDS, most: int = MOST_ROUNDS) -> None:
        self.rounds = 0
        self._seconds, self._least, self._most = seconds * _crowding(), least, most
        self._begin = time.monotonic()

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left of it."""
        if self.rounds > self._most:
            return True
        passed = time.monotonic() - self._begin
        return passed > self._seconds and (self.rounds > self._least or passed > _PATIENCE * self._seconds)

    def pause(self, seconds: float) -> None:
        """Leave out time in which something else was done."""
        self._begin += seconds


def _crowding() -> float:
    """How many programs share a processor of this machine, at least one; one where that is not known (Windows)."""
    try:
        return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    except (AttributeError, OSError):
        return 1.0


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
    provider.barred = set()
    try:
        return _searched(_Barring, provider, roots)
    finally:
        provider.barred = set()


def search_without_barring(provider: Provider, roots: Sequence[AnyNeed]) -> Found:
    """The same in more rounds, for what :func:`search` finds nothing for.

    Raises:
        ResolutionImpossible: Nothing satisfies the needs; the causes are of all candidates that were tried.
        TooLongError: That could not be found out.
    """
    return _searched(_Search, provider, roots)


def _searched(kind: type[_Search], provider: Provider, roots: Sequence[AnyNeed]) -> Found:
    dead_ends: Counter[str] = Counter()
    allowed, rounds = _FIRST, 0
    causes: Sequence[_Information] = ()
    may_forget = True
    while allowed <= _LAST:
        attempt = kind(provider, Counter(dead_ends), allowed, roots, may_forget=may_forget)
        try:
            state = attempt.resolve(roots, max_rounds=_MAX_ROUNDS)
        except (_AstrayError, ResolutionTooDeep):
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


class _Search(Resolution[AnyNeed, AnyCandidate, str]):
    """resolvelib's search with faster methods.

    If a later resolvelib renames them, its own run again: slower, with the same answers.
    """

    def __init__(
        self, provider: Provider, first: Counter[str], allowed: int, roots: Sequence[AnyNeed], *, may_forget: bool
    ) -> None:
        """Prepare.

        Args:
            provider: Of candidates and dependencies.
            first: How often earlier searches came to a dead end at a package: the more, the earlier it is settled.
            allowed: Dead ends.
            roots: What is asked.
            may_forget: Whether what a dropped choice had brought in is forgotten.
        """
        super().__init__(provider, BaseReporter())
        self.rounds = 0
        self.causes: Sequence[_Information] = ()
        self.dead_ends: Counter[str] = Counter()
        self._provider = provider
        self._roots = roots
        self._first = first
        self._left = allowed
        self._may_forget = may_forget
        self._removals = 0
        self.has_forgotten = False
        self._satisfied: dict[str, tuple[_Criterion, AnyCandidate | None, bool]] = {}
        self._standing: dict[str, tuple[_Criterion, tuple[object, ...]]] = {}
        self._causes: tuple[list[_Information], frozenset[str]] = [], frozenset()

    def _attempt_to_pin_criterion(self, name: str) -> list[_Criterion]:
        self.rounds += 1
        self._provider.budget.rounds += 1
        if self._provider.budget.is_spent:
            raise TooLongError(self.causes)
        causes: list[_Criterion] = super()._attempt_to_pin_criterion(name)
        if causes:
            self.causes = [information for criterion in causes for information in criterion.information]
            self._note(name)
        return causes

    def _note(self, name: str) -> None:
        """Count a dead end at a package, and at those that brought it in."""
        brought, waiting = {name}, [name]
        while waiting:
            for _, parent in self.state.criteria[waiting.pop()].information:
                if parent is not None and parent.key not in brought and parent.key in self.state.criteria:
                    brought.add(parent.key)
                    waiting.append(parent.key)
        self.dead_ends.update(brought)
        self._left -= 1
        if self._left < 0:
            raise _AstrayError

    def _is_current_pin_satisfying(self, name: str, criterion: _Criterion) -> bool:
        pin = self.state.mapping.get(name)
        known = self._satisfied.get(name)
        if known is None or known[0] is not criterion or known[1] is not pin:
            self._satisfied[name] = known = criterion, pin, super()._is_current_pin_satisfying(name, criterion)
        return known[2]

    def _remove_information_from_criteria(self, criteria: dict[str, _Criterion], parents: Collection[str]) -> None:
        """Drop the needs of packages whose choice does not hold any more, and of what only these had brought in.

        Resolvelib keeps the latter: the parts of a cuda-toolkit that torch 2.15 needed then ruled out every older torch
        that needs another cuda-toolkit, and the first torch without one was taken. What made a choice invalid is kept,
        even if that choice itself had brought it in: otherwise it would be made again.
        """
        self._removals += 1
        if not parents or not self._may_forget or self._removals > _MAX_REMOVALS:
            super()._remove_information_from_criteria(criteria, parents)
            return
        # What was settled last must stay the last of the state: resolvelib goes back by it.
        reached = _reached(criteria, parents, next(reversed(self.state.mapping)))
        orphans = {*criteria} - reached - {*parents}
        self.has_forgotten = self.has_forgotten or bool(orphans)
        for key, criterion in list(criteria.items()):
            gone = parents if key in parents else orphans.union(parents)
            kept = [one for one in criterion.information if one.parent is None or one.parent.key not in gone]
            if len(kept) < len(criterion.information):
                criteria[key] = Criterion(criterion.candidates, kept, criterion.incompatibilities)
        for key in orphans:
            # Chosen anew if it is needed again: its own needs are forgotten.
            self.state.mapping.pop(key, None)
            if not criteria[key].information:
                del criteria[key]

    def _get_preference(self, name: str) -> tuple[object, ...]:
        criterion = self.state.criteria[name]
        known = self._standing.get(name)
        if known is None or known[0] is not criterion:
            self._standing[name] = known = criterion, self._provider.standing(name, criterion.information)
        if self._causes[0] != self.state.backtrack_causes:
            causes = list(self.state.backtrack_causes)
            self._causes = causes, frozenset(cause.requirement.key for cause in causes)
        return self._provider.preference(name, known[1], self._first[name], name in self._causes[1])


def _reached(criteria: Mapping[str, _Criterion], parents: Collection[str], last: str) -> set[str]:
    """The packages that the request, or the one settled last, leads to other than by way of some packages."""
    brought: dict[str | None, list[str]] = {}
    for key, criterion in criteria.items():
        for _, parent in criterion.information:
            brought.setdefault(parent.key if parent else None, []).append(key)
    reached, waiting = {last}, [None, *([] if last in parents else [last])]
    while waiting:
        new = [key for key in brought.get(waiting.pop(), ()) if key not in reached]
        reached.update(new)
        waiting += [key for key in new if key not in parents]
    return reached - {*parents}


class _Barring(_Search):
    """A search that bars what is in no solution."""

    def _get_updated_criteria(self, candidate: AnyCandidate) -> dict[str, _Criterion]:
        try:
            criteria: dict[str, _Criterion] = super()._get_updated_criteria(candidate)
        except RequirementsConflicted as conflict:
            if not self._fits(candidate, conflict.criterion):
                self._provider.barred.add(candidate)
            raise
        return criteria

    def _fits(self, candidate: AnyCandidate, criterion: _Criterion) -> bool:
        """Whether any version of a package is left, if only the request and the candidate limited it."""
        key = next(iter(criterion.information)).requirement.key
        needs = [need for need in self._roots if need.key == key]
        needs += [need for need, parent in criterion.information if parent is candidate]
        return bool(build_iter_view(self._provider.find_matches(key, {key: iter(needs)}, {key: iter(())})))


class _AstrayError(Exception):
    """A search met more dead ends than it may."""
