"""The reason why no plan exists: a machine that cannot exist, or needs that nothing published satisfies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.facts.builds import SourceProject
from envsolve.facts.catalogue import Catalogue, pythons
from envsolve.machine.model import Machine
from envsolve.packages.requirements import Need
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.driver import can_exist
from envsolve.rules.platform import SYSTEMS
from envsolve.solve.candidate_selector import CandidateSelector
from envsolve.solve.family import Family, Option
from envsolve.solve.limits import Limits
from envsolve.solve.needs import Candidate, PackageNeed
from envsolve.solve.outcome import Conflict, ConflictFact, Fix
from envsolve.solve.resolver import Solve, UnsolvableError
from envsolve.toolchain.model import Compiled
from envsolve.values import ComputeCapability

if TYPE_CHECKING:
    from envsolve.advice.relaxations import Trials


def unserved_system(machines: Sequence[Machine]) -> Conflict | None:
    """Why one of the machines is of a system that no CUDA build is published for, or None."""
    for platform in (machine.platform for machine in machines):
        if platform and (platform.arch or "x86_64") not in SYSTEMS.get(platform.os or "linux", ()):
            fact = f"the machine is {platform.os} {platform.arch}; CUDA builds are published only for Linux and Windows"
            known = ", ".join(f"{system}-{arch}" for system, arches in SYSTEMS.items() for arch in arches)
            return Conflict((ConflictFact(fact),), (Fix(f"plan for one of {known}"),))
    return None


def impossible_machine(machines: Sequence[Machine], facts: Facts, catalogue: Catalogue) -> Conflict | None:
    """Why one of the machines cannot exist (rule 7), or None."""
    for machine in machines:
        for gpu in machine.gpus or ():
            reason = can_exist(gpu, machine.driver, facts.architectures, facts.drivers)
            if reason.ok is False:
                fact = ConflictFact(f"this machine cannot exist: {reason.text}", catalogue.source_title(reason.source))
                known = facts.architectures[gpu.compute_capability or ""]
                span = f"from version {known.first_driver} on" if known.first_driver else "from the first version"
                span += f" up to branch R{known.last_branch}" if known.last_branch else " on"
                remedy = Fix(f"check the GPU and the driver: NVIDIA drivers support {gpu.label} {span}")
                return Conflict((fact,), (remedy,))
    return None


def python_not_allowed(family: Family, limits: Limits) -> Conflict:
    """The conflict between the environment's Python, or all that the facts cover, and the projects' requires-python."""
    # As in unsolvable().
    from envsolve.advice.changes import another_python

    fact, known = f"the environment's Python is {family.python}", pythons(family.catalogue)
    if not family.pythons:
        fact = f"the catalogue has torch builds for Python {known[0]} to {known[-1]}"
    facts = (ConflictFact(f"the project requires Python {family.requires_python}"), ConflictFact(fact))
    return Conflict(facts, tuple(another_python(family, limits)))


def unsolvable(
    failure: UnsolvableError,
    needs: Sequence[Need],
    solve: Solve,
    limits: Limits,
    family: Family,
    selector: CandidateSelector,
    constraints: Mapping[str, SpecifierSet],
    proved: bool,
) -> Conflict:
    """The conflict behind a failed solve: between the machine and the torch family, otherwise among the packages.

    Args:
        failure: What the solver found.
        needs: What it was given.
        solve: Solves a part of the needs, or changed ones.
        limits: The requirements of the request on the torch family.
        family: The torch family on the machines.
        selector: The other packages.
        constraints: Constraints on packages, whichever package requires them.
        proved: Whether changes of the request are solved, which may take 20 s; if not, only such fixes are given
            that need no solve.
    """
    # Only an impossible plan asks for a reason.
    from envsolve.advice.conflicts import conflict_report, explain
    from envsolve.advice.published import compiled_instead
    from envsolve.advice.relaxations import Trials, proved_siblings, relaxations

    asked = {n: s for n, s in limits.asked.items() if family.knows(n, s) or not selector.has(n, s)}
    # No torch runs here, and something of the request needs one: the answer is that of a request for torch.
    through = list(_needing_torch(failure))
    if through and not family.options("torch"):
        asked.setdefault("torch", SpecifierSet())
    limits = replace(limits, asked=asked)
    # Pins of other packages that exclude each other are the whole reason, whatever holds for the family.
    apart = failure.by_pins and not any(family.owns(cause.need.key) for cause in failure.causes)
    conflict = None if apart else explain(family, limits)
    needs = [need for need in needs if selector.environment.wants(need.requirement.marker)]
    trials = Trials(solve, needs, failure.causes, proved=proved)
    if conflict is None:
        return conflict_report(needs, trials, family, selector, constraints)
    relaxed = tuple(relaxations(needs, [fix.relaxes for fix in conflict.remedies if fix.relaxes], family, trials))
    # What the family alone would allow may contradict the other requirements.
    unproved = [*proved_siblings((fix for fix in conflict.remedies if not fix.relaxes), needs, trials)]
    at = next((place for place, fix in enumerate(conflict.remedies) if fix.relaxes), 0)
    instead = (*_stood_in(needs, family, trials), *compiled_instead(family, limits, selector))
    fixes = (*instead, *unproved[:at], *relaxed, *unproved[at:])
    return Conflict((*through, *conflict.facts), fixes or tuple(replace(fix, unlocks="") for fix in conflict.remedies))


def _stood_in(needs: Sequence[Need], family: Family, trials: Trials) -> Iterator[Fix]:
    """Alternatives to requested packages that are not published for the machines."""
    from envsolve.advice.conflicts import for_these

    for need in needs:
        name = canonicalize_name(need.requirement.name)
        if not family.owns(name) or any(for_these(option, family) for option in family.judged(name)):
            continue
        for one in family.catalogue.shared_files:
            if one.stands_in and one.owner == name:
                other = replace(need, requirement=Requirement(one.package), hashes=())
                solution = trials.anew([other if each is need else each for each in needs])
                if solution is not None:
                    label = solution.chosen[one.package].candidate.label
                    yield Fix(f"request {one.package} instead of {name}", unlocks=label)


def _needing_torch(failure: UnsolvableError) -> Iterator[ConflictFact]:
    """The packages of a failed solve that need torch."""
    for cause in failure.causes:
        if isinstance(cause.parent, Candidate) and isinstance(cause.need, PackageNeed) and cause.need.key == "torch":
            yield ConflictFact(f"{cause.parent.label} requires {cause.need.text}")


_MOST_PYTHONS = 3


def with_proved_pythons(conflict: Conflict, fits: Callable[[str], bool | None], order: Sequence[str]) -> Conflict:
    """The conflict, proposing only Pythons with which the whole request can be solved.

    Args:
        conflict: The reason of a refusal.
        fits: Whether the request has an answer with another Python; None if that could not be found out.
        order: All Pythons; the first three of those proposed are tried.
    """
    known: dict[str, bool | None] = {}
    fixes: list[Fix] = []
    refuted: list[Fix] = []
    for fix in conflict.remedies:
        tried = sorted(fix.pythons, key=lambda one: order.index(one) if one in order else len(order))[:_MOST_PYTHONS]
        for python in tried:
            known[python] = known[python] if python in known else fits(python)
        good = [python for python in fix.pythons if known.get(python)]
        if good:
            text = fix.text.replace(", ".join(fix.pythons), ", ".join(good))
            fixes.append(replace(fix, text=text, pythons=tuple(good)))
        elif tried and all(known[python] is False for python in tried):
            text = f"{fix.text}, and relax the requirements that conflict with it: --python {tried[0]} shows them"
            refuted.append(replace(fix, text=text, unlocks=""))
        else:
            fixes.append(fix)
    return replace(conflict, remedies=tuple(fixes or refuted))


def no_triton(chosen: Option, family: Family) -> Conflict:
    """Why Triton, requested without torch, runs nothing on the machine; the Triton, driver or GPU that would."""
    # As in unsolvable().
    from envsolve.advice.changes import another_card, driver_remedy, fewer_cards

    facts = []
    for reason in chosen.verdict.failures:
        facts.append(ConflictFact(reason.text, family.catalogue.source_title(reason.source)))

    def answer(changed: Family) -> tuple[Option, ...] | None:
        found = next((o for o in changed.options(chosen.build.package) if o.verdict.level.usable), None)
        return (found,) if found else None

    if here := answer(family):
        return Conflict(
            tuple(facts), (Fix(f"request triton=={here[0].build.version}", unlocks="a Triton whose kernels run here"),)
        )
    others = [*fewer_cards(family, answer), *driver_remedy(family, answer)] or [*another_card(family, answer)]
    told = f"envsolve builds {chosen.build.package} --target 'GPU, driver VERSION'"
    return Conflict(tuple(facts), tuple(others) or (Fix(f"use another GPU with a newer driver; see {told}"),))


def extension_without_code(
    compiled: Sequence[Compiled], machines: Sequence[Machine], catalogue: Catalogue
) -> Conflict | None:
    """Why compiled packages would support none of the GPUs, and the versions that do; None if they support one."""
    cards = {gpu.cc: gpu.label for machine in machines for gpu in machine.gpus or () if gpu.cc}
    for project in (one.project for one in compiled if one.project and one.project.min_cc):
        oldest = ComputeCapability.parse(project.min_cc or "0.0")
        if not cards or any(cc >= oldest for cc in cards):
            continue
        name, versions = project.package, project.versions
        facts = (
            ConflictFact(
                f"{name} {versions} can be compiled only for compute capability {oldest} and newer",
                catalogue.source_title(project.source),
            ),
            *(ConflictFact(f"the machine has {label}") for label in cards.values()),
        )
        older = [other for other in catalogue.source_projects if other.package == name and _compiles_for(other, cards)]
        remedies = (
            *(
                Fix(f"request '{name}{other.versions}'", unlocks=f"can be compiled for {' and '.join(cards.values())}")
                for other in reversed(older)
            ),
            Fix(f"leave out {name}", unlocks="the rest of the plan"),
        )
        return Conflict(facts, remedies)
    return None


def _compiles_for(project: SourceProject, cards: Iterable[ComputeCapability]) -> bool:
    return all(cc >= ComputeCapability.parse(project.min_cc or "0.0") for cc in cards)
