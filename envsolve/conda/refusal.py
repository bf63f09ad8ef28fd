"""Why there is no conda plan, and the least that would make one: each change is tried before it is proposed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from envsolve.catalogue.load import Catalogue
from envsolve.compat.facts import Facts
from envsolve.compat.life import can_exist
from envsolve.compat.verdict import Level
from envsolve.compat.versions import numbers
from envsolve.conda.client import UnsolvableError
from envsolve.conda.judge import CondaJudge, JudgedBuild
from envsolve.conda.model import Spec
from envsolve.conda.solve import Question, Solution, Solver
from envsolve.conda.virtual import virtual_packages
from envsolve.machine.model import Driver, Machine
from envsolve.resolve.outcome import Conflict, ConflictFact, Remedy

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """A question that has no answer, and what it was asked of.

    Attributes:
        machines: As they are judged.
        solver: That of these machines.
    """

    question: Question
    machines: tuple[Machine, ...]
    solver: Solver
    facts: Facts
    catalogue: Catalogue


def refused(attempt: Attempt, failure: UnsolvableError) -> Conflict:
    """The conflict: where the rules leave no build, their reasons; else the solver's own."""
    builds = attempt.solver.builds(attempt.question.subdir).get("pytorch", ())
    asked = next((spec for spec in attempt.question.specs if spec.name in ("pytorch", "pytorch-gpu")), None)
    candidates = [one for one in builds if one.candidate.subdir == attempt.question.subdir]
    if asked and candidates and all(one.verdict.level is Level.NONE for one in candidates):
        facts = tuple(_reasons(candidates, attempt))
    else:
        facts = tuple(ConflictFact(line) for line in failure.lines)
    return Conflict(facts, tuple(_remedies(attempt)))


def _reasons(builds: Sequence[JudgedBuild], attempt: Attempt) -> Iterator[ConflictFact]:
    """Why the newest builds do not run, each reason told once."""
    cuda = [one for one in builds if one.build.cuda] or list(builds)
    newest = sorted(cuda, key=lambda one: numbers(one.candidate.version), reverse=True)
    told: dict[str, ConflictFact] = {}
    for one in newest:
        for reason in one.verdict.failures:
            source = attempt.catalogue.source(reason.source)
            told.setdefault(reason.text, ConflictFact(reason.text, source.title if source else None))
    yield from list(told.values())[:_SHOWN]


def _remedies(attempt: Attempt) -> Iterator[Remedy]:
    own = [spec for spec in attempt.question.specs if spec.version or spec.build]
    for spec in own:
        loose = replace(attempt.question, specs=tuple(Spec(s.name) if s == spec else s for s in attempt.question.specs))
        if found := _tried(attempt.solver, loose):
            yield Remedy(f"relax {spec}", _named(found))
    for spec in (spec for spec in attempt.question.specs if spec not in own):
        if len(attempt.question.specs) > 1 and (found := _tried(attempt.solver, attempt.question.without(spec))):
            yield Remedy(f"give up {spec.name}", _named(found))
    yield from _drivers(attempt)


def _drivers(attempt: Attempt) -> Iterator[Remedy]:
    """The oldest driver branch that lets a build through and drops none of the cards."""
    if not any(machine.gpus and machine.driver for machine in attempt.machines):
        return
    for branch in sorted(attempt.facts.drivers, key=lambda branch: numbers(branch.first)):
        driver = Driver(branch.first, branch.cuda)
        have = [machine.driver.version for machine in attempt.machines if machine.driver and machine.driver.version]
        if any(numbers(branch.first) <= numbers(version) for version in have):
            continue
        cards = [gpu for machine in attempt.machines for gpu in machine.gpus or ()]
        if any(can_exist(g, driver, attempt.facts.architectures, attempt.facts.drivers).ok is False for g in cards):
            continue
        machines = tuple(replace(machine, driver=driver) for machine in attempt.machines)
        judge = CondaJudge(machines, attempt.facts, attempt.catalogue.conda)
        question = replace(attempt.question, virtual=virtual_packages(machines, attempt.facts))
        if found := _tried(attempt.solver.for_machines(judge), question):
            yield Remedy(f"install driver {branch.first} or newer (branch R{branch.branch})", _named(found))
            return


def _tried(solver: Solver, question: Question) -> Solution | None:
    try:
        return solver.solve(question)
    except UnsolvableError:
        return None


def _named(solution: Solution) -> str:
    torch = solution.judged.get("pytorch")
    if torch is None:
        return "then it can be solved"
    return f"pytorch {torch.candidate.version} [{torch.build.variant}]"
