"""Which requirements exclude each other, and which of them to relax: every answer comes from a solve."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.errors import EnvsolveError
from envsolve.packages.requirements import Need
from envsolve.rules.nvidia.code import cuda_suffix
from envsolve.solve.family import Family
from envsolve.solve.needs import AnyCandidate, Candidate, ClaimNeed, PackageNeed, VariantCandidate, VariantNeed
from envsolve.solve.outcome import Fix
from envsolve.solve.pins import Cause
from envsolve.solve.resolver import Budget, Solution, Solve, UnsolvableError

# A plan that is refused in two seconds should not take a minute for its advice. Most solves here have only a part of
# the requirements, and all metadata of the first solve is in memory.
_ALL, _EACH = (20.0, 3_000, 6_000), (8.0, 1_500, 3_000)  # of all solves, of each one: seconds, least and most rounds
_MOST_FIXES, _MOST_ROUNDS, _MOST_NAMED = 3, 6, 3


class Trials:
    """Solves of parts and changes of a request, all of them within a limited time.

    Attributes:
        core: The smallest list of requirements so far that has no answer, with its causes.
    """

    def __init__(self, solve: Solve, needs: Sequence[Need], causes: Sequence[Cause], *, proved: bool = True) -> None:
        """Prepare.

        Args:
            solve: Solves needs.
            needs: The request, which has no answer.
            causes: Why.
            proved: Whether to solve at all: without it, nothing is known of any change.
        """
        self._solve = solve
        self._budget = Budget(*_ALL) if proved else Budget(most=-1)
        self.core: tuple[Sequence[Need], Sequence[Cause]] = needs, causes

    def tried(self, needs: Sequence[Need]) -> Solution | UnsolvableError | None:
        """The solution or the failure; None if an index failed or time ran out."""
        if self._budget.is_spent:
            return None
        each = Budget(*_EACH)
        try:
            return self._solve(needs, each)
        except UnsolvableError as failure:
            return failure
        except EnvsolveError:
            return None
        finally:
            # A solve that reads pages and ends before its first round counts as well.
            self._budget.rounds += each.rounds + 1

    def refutes(self, needs: Sequence[Need]) -> bool:
        """Whether requirements are known to have no answer; the core is the fewest of them so far."""
        found = self.tried(needs)
        if not isinstance(found, UnsolvableError):
            return False
        if len(needs) <= len(self.core[0]):
            self.core = needs, found.causes
        return True

    def anew(self, needs: Sequence[Need]) -> Solution | None:
        """The answer to other requirements; if they have none, they are the core from then on."""
        found = self.tried(needs)
        self.core = needs, found.causes if isinstance(found, UnsolvableError) else ()
        return found if isinstance(found, Solution) else None

    def reduce(self) -> None:
        """Make the core irreducible, as far as the time allows."""
        needs, causes = self.core
        named = {name for cause in causes for name in _names(cause)}
        suspects = [need for need in needs if _name(need) in named]
        if not 0 < len(suspects) < len(needs) or not self.refutes(suspects):
            suspects = list(needs)
        # What comes first is preferred in the core: a pin explains more than a bare name.
        suspects.sort(key=_strictness)
        # A package that is asked for by URL is another than that of the index, so the request is not told without it.
        kept = [need for need in suspects if need.requirement.url]
        rest = [need for need in suspects if not need.requirement.url]
        self.refutes([*kept, *(_smallest(kept, rest, self, changed=bool(kept)) if rest else ())])


def _smallest(kept: Sequence[Need], needs: Sequence[Need], trials: Trials, *, changed: bool) -> list[Need]:
    """QuickXplain: the smallest part of the requirements that has no solution together with those that are kept."""
    if changed and trials.refutes([*kept]):
        return []
    if len(needs) == 1:
        return [*needs]
    first, second = needs[: len(needs) // 2], needs[len(needs) // 2 :]
    found = _smallest([*kept, *first], second, trials, changed=True)
    return [*_smallest([*kept, *found], first, trials, changed=bool(found)), *found]


def relaxations(
    needs: Sequence[Need], first: Sequence[Collection[str]], family: Family, trials: Trials
) -> Iterator[Fix]:
    """Sets of requirements to relax, each solved together with the rest of the request.

    Args:
        needs: The request.
        first: Names of requirements to relax, set by set. Others that prove compatible with a set are relaxed
        with it.
        family: The torch family on the machines.
        trials: Solves.
    """
    told: dict[frozenset[str], Fix] = {}
    for names in first:
        given = frozenset(names)
        for _ in range(_MOST_ROUNDS):
            if any(known <= given for known in told):
                break
            changed = _relaxed(needs, given)
            solution = trials.anew(changed) if changed else None
            if solution is not None:
                told[given] = _fix(needs, given, solution)
                break
            more = _going_with(needs, given, family) or _in_the_way(trials)
            if more <= given:
                break
            given |= more
        if len(told) == _MOST_FIXES:
            break
    # The fewest requirements are the cheapest to give up; what is found first may have needed others to go with it.
    yield from (told[given] for given in sorted(told, key=len))


def proved_siblings(fixes: Iterable[Fix], needs: Sequence[Need], trials: Trials) -> Iterator[Fix]:
    """Fixes without those that name another package known to conflict with the rest of the request."""
    for fix in fixes:
        name, sibling = fix.replaces or ("", "")
        if not sibling:
            yield fix
            continue
        changed = [replace(n, requirement=_renamed(n, sibling)) if _name(n) == name else n for n in needs]
        if changed == [*needs]:
            continue  # something else requires it by this name
        found = trials.tried(changed)
        if isinstance(found, Solution) and sibling in found.chosen:
            yield replace(fix, unlocks=found.chosen[sibling].candidate.label)
        elif found is None:
            yield fix


def _renamed(need: Need, name: str) -> Requirement:
    extras = f"[{','.join(sorted(need.requirement.extras))}]" if need.requirement.extras else ""
    return Requirement(f"{name}{extras}")


def without_one(needs: Sequence[Need], core: Sequence[Need], trials: Trials) -> Iterator[Fix]:
    """The requirements of a core that the conflict needs: without any one of them, the rest can be solved."""
    names = [*map(_name, core)]
    for name in dict.fromkeys(names):
        # Of several requirements on one package, as jax[cuda12] and jax[cuda13], one may go.
        several = names.count(name) > 1
        texts = dict.fromkeys(str(need.requirement) for need in core if _name(need) == name)
        for text in texts if several else [name]:
            rest = [need for need in needs if (str(need.requirement) if several else _name(need)) != text]
            if rest and trials.anew(rest) is not None:
                yield Fix(f"leave out {text}")


def without_parents(causes: Sequence[Cause], needs: Sequence[Need]) -> Iterator[Fix]:
    """The change that leaves out the package with the impossible requirement, or requests another version of it."""
    limited = {_name(need): need.requirement.specifier for need in needs if need.requirement.specifier}
    for cause in causes:
        if isinstance(cause.parent, Candidate):
            name = cause.parent.name
            if name in limited:
                yield Fix(
                    f"relax {name}{limited[name]} (other requirements may also be in conflict: the search stopped at "
                    "its time limit)"
                )
            else:
                yield Fix(f"leave out {name}, or request a version of {name} without this requirement")
            return


def _in_the_way(trials: Trials) -> frozenset[str]:
    if not trials.core[1]:
        return frozenset()
    trials.reduce()
    return frozenset(_name(need) for need in trials.core[0] if need.requirement.specifier)


def _going_with(needs: Sequence[Need], given: Collection[str], family: Family) -> frozenset[str]:
    """The pins that move with torch: those of its family and of the CUDA libraries that it pins itself."""
    if "torch" not in given:
        return frozenset()
    names = {_name(need) for need in needs if any(s.operator == "==" for s in need.requirement.specifier)}
    libraries = {name for name in names if (cuda := cuda_suffix(name)) and cuda[0] in family.runtime}
    return frozenset({*libraries, *filter(family.owns, names)} - set(given))


def _relaxed(needs: Sequence[Need], given: Collection[str]) -> list[Need]:
    """A request with some requirements relaxed; one that has no limits is left out."""
    changed = []
    for need in needs:
        if _name(need) not in given:
            changed.append(need)
        elif need.requirement.specifier:
            requirement = Requirement(str(need.requirement))
            requirement.specifier = SpecifierSet()
            changed.append(replace(need, requirement=requirement, hashes=()))
    return changed


def _fix(needs: Sequence[Need], given: Collection[str], solution: Solution) -> Fix:
    asked = {_name(need): need.requirement for need in needs if _name(need) in given}
    limited = [f"{name}{requirement.specifier}" for name, requirement in asked.items() if requirement.specifier]
    bare = [name for name, requirement in asked.items() if not requirement.specifier]
    actions = [f"relax {_listed(limited)}"] if limited else []
    actions += [f"leave out {_listed(bare)}"] if bare else []
    names = [name for name in asked if name in solution.chosen] or [
        name for name in ("torch",) if name in solution.chosen
    ]
    labels = [solution.chosen[name].candidate.label for name in names]
    shown = [*labels[:_MOST_NAMED], *([f"{len(labels) - _MOST_NAMED} others"] if len(labels) > _MOST_NAMED else [])]
    beside = f" with {_listed(shown[1:])}" if shown[1:] else ""
    return Fix(" and ".join(actions), unlocks="".join(shown[:1]) + beside)


def _listed(texts: Sequence[str]) -> str:
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


def _name(need: Need) -> str:
    return canonicalize_name(need.requirement.name)


def _names(cause: Cause) -> Iterator[str]:
    if isinstance(cause.need, PackageNeed):
        yield cause.need.name
    if isinstance(cause.parent, Candidate):
        yield cause.parent.name


def _strictness(need: Need) -> int:
    operators = {s.operator for s in need.requirement.specifier}
    return 0 if operators & {"==", "==="} else 1 if operators else 2


# A conflict in words: who needs what that excludes what others need.


def parties_of(causes: Sequence[Cause]) -> list[list[Cause]]:
    """Clashes of the same package over the same thing, newest version first."""
    found: dict[tuple[str, str], list[Cause]] = {}
    for cause in causes:
        # Each demand of the request speaks for itself.
        name = cause.parent.name if isinstance(cause.parent, Candidate) else cause.need.text
        found.setdefault((name, cause.need.key), []).append(cause)
    return [sorted(party, key=_age) for party in found.values()]


def _age(cause: Cause) -> tuple[object, ...]:
    if isinstance(cause.parent, Candidate):
        version = cause.parent.version
        return (-version.epoch, tuple(-part for part in version.release), cause.parent.label)
    return (0, (), cause.need.text)


def sentences(party: Sequence[Cause]) -> Iterator[str]:
    """The newest clash of several over one thing in words, and the oldest."""
    newest, oldest = _sentence(party[0]), _sentence(party[-1])
    yield newest
    # An extra and its package clash in the same words.
    if oldest != newest:
        others = len(party) - 1
        rest = f"the {others} other versions tried require" if others > 1 else "the other version tried requires"
        yield f"{rest} something similar; the oldest: {oldest}"


def _sentence(cause: Cause) -> str:
    if cause.parent is None:
        origin = f" ({cause.need.origin})" if isinstance(cause.need, PackageNeed) else ""
        return f"{cause.need.text} was requested{origin}"
    if isinstance(cause.need, VariantNeed):
        return f"{_label(cause.parent)} is built for {' or '.join(sorted(cause.need.variants))}"
    if isinstance(cause.need, ClaimNeed):
        return f"{_label(cause.parent)} {cause.need.text}"
    return f"{_label(cause.parent)} requires {cause.need.text}"


def _label(candidate: AnyCandidate | None) -> str:
    if candidate is None:
        return "the request"
    if isinstance(candidate, Candidate):
        return candidate.label
    return candidate.variant if isinstance(candidate, VariantCandidate) else candidate.holder
