"""The search of the solve: resolvelib's, without repeated work, and restarted if it takes too long."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from resolvelib import BaseReporter, ResolutionImpossible
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
# and so is every candidate that then has no version left of something that it needs. What excludes a candidate beside
# some others is remembered as well. Resolvelib alone would find that out anew for each version of everything that was
# settled before.


_Criterion = Criterion[AnyNeed, AnyCandidate]
_Information = RequirementInformation[AnyNeed, AnyCandidate]


# What one solve may take. A plan takes some hundred rounds of about 2 ms. The clock alone would give other answers on a
# busy machine: it counts only after the least number of rounds, or if even these take twice as long, and a second is
# worth less where more programs run than there are processors.
SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 60.0, 5_000, 30_000
_PATIENCE = 2
# Two choices could in turn drop what speaks against the other, again and again.
_MAX_REMOVALS = 500
# Of a conflict of more packages than this, all are taken for its causes.
_MOST_NAMED = 12
# Conflicts of more choices than this hardly come again.
_MOST_LEARNT = 3


class TooLongError(Exception):
    """No search came to an end.

    Attributes:
        causes: The last conflict that a search met.
    """

    def __init__(self, causes: Sequence[_Information]) -> None:
        super().__init__("the search did not finish in time")
        self.causes = tuple(causes)


class Budget:
    """Limits on the rounds and the time of the searches of one solve.

    Attributes:
        rounds: The rounds used so far.
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
        """Exclude time that was spent on something else."""
        self._begin += seconds


def _crowding() -> float:
    """How many programs share a processor of this machine, at least one; one where that is not known (Windows)."""
    try:
        return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    except (AttributeError, OSError):
        return 1.0


class Search(Resolution[AnyNeed, AnyCandidate, str]):
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
            roots: The requirements of the request.
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
        """Count a dead end at a package, and at those that required it."""
        brought, waiting = {name}, [name]
        while waiting:
            for _, parent in self.state.criteria[waiting.pop()].information:
                if parent is not None and parent.key not in brought and parent.key in self.state.criteria:
                    brought.add(parent.key)
                    waiting.append(parent.key)
        self.dead_ends.update(brought)
        self._left -= 1
        if self._left < 0:
            raise AstrayError

    def _is_current_pin_satisfying(self, name: str, criterion: _Criterion) -> bool:
        pin = self.state.mapping.get(name)
        known = self._satisfied.get(name)
        if known is None or known[0] is not criterion or known[1] is not pin:
            self._satisfied[name] = known = criterion, pin, super()._is_current_pin_satisfying(name, criterion)
        return known[2]

    def _remove_information_from_criteria(self, criteria: dict[str, _Criterion], parents: Collection[str]) -> None:
        """Drop the requirements of packages whose choice was undone, and of packages that only these required.

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
    """The packages that the request, or the package settled last, reaches without passing through some packages."""
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


class LearningSearch(Search):
    """A search that bars what is in no solution, and goes straight back to the choice that a dead end is due to.

    Resolvelib goes back to the last choice that needs anything of what is in conflict: of forty companions of torch,
    each is tried in all its versions before torch itself is. Here each conflict is reduced to the choices that alone
    make it one (conflict-directed backjumping, Prosser 1993), and two needs that exclude each other are remembered.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._optimistic_backjumping_ratio = 0.0  # resolvelib's own way to go back further
        #: The packages whose choices the dead ends are due to that are being met.
        self._blamed: set[str] = set()
        #: The same of candidates that an earlier dead end ruled out.
        self._ruled_out: dict[tuple[str, AnyCandidate], frozenset[str]] = {}

    def _attempt_to_pin_criterion(self, name: str) -> list[_Criterion]:
        self._blamed = set()
        causes = super()._attempt_to_pin_criterion(name)
        if causes:
            self._blamed |= self._behind(name, self.state.criteria[name])
            self._blamed.discard(name)
        return causes

    def _behind(self, name: str, criterion: _Criterion, ruled_out: Sequence[AnyCandidate] = ()) -> set[str]:
        """The packages whose choices limit a package."""
        behind = {one.parent.key for one in criterion.information if one.parent is not None}
        lost = (*criterion.incompatibilities, *ruled_out)
        return behind.union(*(self._ruled_out.get((name, one), ()) for one in lost))

    def _get_updated_criteria(self, candidate: AnyCandidate) -> dict[str, _Criterion]:
        self._recall(candidate)
        try:
            criteria: dict[str, _Criterion] = super()._get_updated_criteria(candidate)
        except RequirementsConflicted as conflict:
            self._blamed |= self._explained(candidate, conflict.criterion)
            raise
        return criteria

    def _recall(self, candidate: AnyCandidate) -> None:
        """Raise the conflict that a candidate is known to have with what is chosen or needed now."""
        for others in self._provider.learnt.refuted.get(candidate, ()):
            if all(self._is_chosen(one) for one in others):
                self._blamed.update(one.key for one in others)
                raise RequirementsConflicted(self.state.criteria[candidate.key])
        for own in self._provider.learnt.failed.get(candidate, ()):
            criterion = self.state.criteria.get(own[0].requirement.key)
            for one in criterion.information if criterion else ():
                if one.parent is not None and self._provider.learnt.excluded.get((own[0].requirement, one.requirement)):
                    self._blamed.add(one.parent.key)
                    raise RequirementsConflicted(Criterion(build_iter_view([]), [one, *own], []))

    def _is_chosen(self, candidate: AnyCandidate) -> bool:
        """Whether a candidate is chosen, and still what is needed."""
        name = candidate.key
        # `!=` of two candidates would ask whether they are the same object.
        return (
            self.state.mapping.get(name) == candidate
            and name in self.state.criteria
            and self._is_current_pin_satisfying(name, self.state.criteria[name])
        )

    def _explained(self, candidate: AnyCandidate, criterion: _Criterion) -> set[str]:
        """The packages whose choices exclude a candidate; bars it if nothing but the request does."""
        key = next(iter(criterion.information)).requirement.key
        own = [one for one in criterion.information if one.parent is candidate]
        needs = [need for need in self._roots if need.key == key] + [one.requirement for one in own]
        if not self._leaves_any(key, needs):
            self._provider.learnt.barred.add(candidate)
            return set()
        others = [one for one in criterion.information if one.parent is not None and one.parent is not candidate]
        order = {name: place for place, name in enumerate(self.state.mapping)}
        others.sort(key=lambda one: order.get(_parent(one), -1))
        excluding = (one for one in others if len(own) == 1 and self._exclude(key, needs, own[0].requirement, one))
        if (first := next(excluding, None)) is not None:
            failed = self._provider.learnt.failed.setdefault(candidate, [])
            failed += [] if own in failed else [own]
            return {_parent(first)}
        if self._leaves_any(key, [*needs, *(one.requirement for one in others)]):
            return self._behind(key, criterion) - {candidate.key}
        return {_parent(one) for one in self._fewest(key, needs, others)}

    def _fewest(self, key: str, needs: Sequence[AnyNeed], others: Sequence[_Information]) -> Sequence[_Information]:
        """Others that are needed for a conflict. Those settled last are left out first: the rest goes further back."""
        for one in others[:0:-1] if len(others) <= _MOST_NAMED else ():
            fewer = [other for other in others if other is not one]
            if not self._leaves_any(key, [*needs, *(other.requirement for other in fewer)]):
                others = fewer
        return others

    def _exclude(self, key: str, needs: Sequence[AnyNeed], own: AnyNeed, other: _Information) -> bool:
        excluded, pair = self._provider.learnt.excluded, (own, other.requirement)
        if pair not in excluded:
            excluded[pair] = not self._leaves_any(key, [*needs, other.requirement])
        return excluded[pair]

    def _leaves_any(self, key: str, needs: Sequence[AnyNeed]) -> bool:
        """Whether any version of a package is left."""
        return bool(build_iter_view(self._provider.find_matches(key, {key: iter(needs)}, {key: iter(())})))

    def _remove_information_from_criteria(self, criteria: dict[str, _Criterion], parents: Collection[str]) -> None:
        """Drop also what was ruled out because of a choice that was undone; resolvelib keeps that."""
        before, chosen = dict(criteria), {*self.state.mapping}
        super()._remove_information_from_criteria(criteria, parents)
        gone = {*parents} | ({*before} - {*criteria}) | (chosen - {*self.state.mapping})
        for key, criterion in list(criteria.items()) if gone else ():
            kept = [one for one in criterion.incompatibilities if gone.isdisjoint(self._ruled_out.get((key, one), ()))]
            if criterion.information and (criterion is not before[key] or len(kept) < len(criterion.incompatibilities)):
                needs = list(criterion.iter_requirement())
                matches = self._provider.find_matches(key, {key: iter(needs)}, {key: iter(kept)})
                criteria[key] = Criterion(build_iter_view(matches), list(criterion.information), kept)

    def _backjump(self, causes: list[_Information]) -> bool:
        """Go back to the last of the choices that a dead end is due to, and rule it out."""
        while len(self._states) >= 3:
            del self._states[-1]
            name, candidate, broken = self._last_blamed(causes)
            self._blamed.discard(name)
            self._ruled_out[name, candidate] = frozenset(self._blamed)
            self._learn(candidate)
            ruled_out = [(key, list(criterion.incompatibilities)) for key, criterion in broken.criteria.items()]
            self._push_new_state()
            if self._patch_criteria([*ruled_out, (name, [candidate])]):
                return True
            # One of these has no version left.
            for key, candidates in [*ruled_out, (name, [candidate])]:
                if candidates and (criterion := self.state.criteria.get(key)) is not None:
                    self._blamed |= self._behind(key, criterion, candidates)
        return False

    def _learn(self, candidate: AnyCandidate) -> None:
        """Remember that a candidate is in no solution beside the choices that are blamed, if these are few."""
        others = [self.state.mapping.get(name) for name in self._blamed]
        if not others:
            self._provider.learnt.barred.add(candidate)
        elif len(others) <= _MOST_LEARNT and None not in others:
            self._provider.learnt.refuted.setdefault(candidate, {})[frozenset(filter(None, others))] = None

    def _last_blamed(self, causes: list[_Information]) -> tuple[str, AnyCandidate, State[AnyNeed, AnyCandidate, str]]:
        while len(self._states) > 1:
            broken = self._states.pop()
            if not broken.mapping:
                break
            name, candidate = broken.mapping.popitem()
            if name in self._blamed:
                return name, candidate, broken
        raise ResolutionImpossible(causes)


def _parent(information: _Information) -> str:
    """The package whose choice added a requirement."""
    return information.parent.key if information.parent is not None else ""


class AstrayError(Exception):
    """A search reached its limit of dead ends."""
