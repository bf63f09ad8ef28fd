"""The plan: life of the machine, Python, solve, files, and what to say about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.catalogue.load import Catalogue
from envsolve.compat.facts import Facts
from envsolve.compat.settle import as_judged
from envsolve.compat.triton import TRITON
from envsolve.compat.verdict import Level
from envsolve.index.client import IndexClient
from envsolve.machine.model import Machine
from envsolve.plan import Caution, Plan
from envsolve.planner.cautions import (
    about_compat,
    about_indexes,
    about_machines,
    about_packages,
    about_runtime,
    about_systems,
    about_torch,
    about_unjudged,
)
from envsolve.planner.offindex import about_elsewhere, about_off_index, off_index
from envsolve.planner.pinning import pin
from envsolve.planner.python import choose_python
from envsolve.planner.refusal import extension_without_code, impossible_machine, no_triton, unserved_system, unsolvable
from envsolve.planner.rounds import (
    NothingFitsError,
    Resolved,
    compiled_in,
    toolchain_of,
    with_assembler,
    with_build_tools,
    with_ready_wheels,
    with_torch,
)
from envsolve.planner.sources import about_other_sources, about_trees
from envsolve.planner.support import driver_need, driver_of_code, judged_builds, support_of
from envsolve.planner.toolchain import about_missing_tools, where_it_runs
from envsolve.resolve.cutoff import cutoff_of
from envsolve.resolve.direct import DirectReferences
from envsolve.resolve.environment import Environment, environments_of
from envsolve.resolve.family import Family
from envsolve.resolve.familyfiles import BuildGoneError, FamilyFiles
from envsolve.resolve.fleet import by_kind
from envsolve.resolve.kept import Kept
from envsolve.resolve.limits import Limits
from envsolve.resolve.outcome import Conflict
from envsolve.resolve.outside import Ready, still_there
from envsolve.resolve.pool import Pool
from envsolve.resolve.provider import Provider
from envsolve.resolve.requirements import Asked, Need
from envsolve.resolve.solve import Solution, UnsolvableError, solve


class Choices(msgspec.Struct, frozen=True):
    """What the user fixes beforehand.

    Attributes:
        python: ``3.12``; None takes the machine's.
        cuda: A flavour, ``cu126`` or ``cpu``; None lets the solve choose.
        exclude_newer: ISO 8601 date or instant; nothing published later is considered.
        prereleases: Consider pre-releases of ordinary packages.
        kept: Versions to stay with where the request and the machines allow it.
    """

    python: str | None = None
    cuda: str | None = None
    exclude_newer: str | None = None
    prereleases: bool = False
    kept: Kept = {}


def make_plan(
    asked: Asked, machines: Sequence[Machine], choices: Choices, catalogue: Catalogue, client: IndexClient
) -> Plan:
    """Plan an environment that is good on every one of the machines.

    Args:
        asked: Requirements and constraints.
        machines: At least one; what the catalogue knows of them filled in.
        choices: Fixed beforehand.
        catalogue: The facts.
        client: The indexes.

    Returns:
        A plan of status ``ok`` or ``unknown``, or one of status ``impossible`` that says why.

    Raises:
        IndexUnavailableError: An index that only it can answer for failed.
    """
    facts = Facts.of(catalogue)
    cutoff = cutoff_of(choices.exclude_newer) if choices.exclude_newer else None
    judged = tuple(as_judged(machine, choices.cuda, catalogue.drivers) for machine, *_ in by_kind(machines))
    family = Family(catalogue, facts, judged, None, cutoff, kept=choices.kept)
    python = choices.python or choose_python(asked, machines, family)
    frame = Plan(
        warnings=tuple(Caution("set-aside", note) for note in asked.notes),
        machines=tuple(machines),
        python=python,
        requirements=tuple(str(need.requirement) for need in asked.needs),
        catalogue_date=catalogue.date,
        own_catalogue_date=catalogue.own_date,
    )
    refusal = unserved_system(machines) or impossible_machine(judged, facts, catalogue)
    if refusal is not None:
        return _impossible(frame, refusal)
    family = structs.replace(family, python=python)
    environment, *others = environments_of(judged, python)
    files, direct = FamilyFiles(client, catalogue, python), DirectReferences(client)
    wanted = _specifiers(asked.needs, environment)
    constraints = _specifiers(asked.constraints, environment)
    of_family = {n: s & constraints.get(n, SpecifierSet()) for n, s in wanted.items() if family.owns(n)}
    limits = Limits(of_family, choices.cuda)
    digests = _digests((*asked.needs, *asked.constraints), environment)
    pool = Pool(client, environment, digests, tuple(others), cutoff, choices.prereleases, choices.kept)
    client.prefetch(name for name in wanted if not family.owns(name))

    def resolve(needs: Sequence[Need], family: Family, ready: Ready) -> Resolved:
        # Of a package whose files are named by hash, no other file may be taken.
        wheels = {name: some for name, some in still_there(ready, family).items() if name not in digests}
        provider = Provider(environment, family, pool, files, direct, client, constraints, wheels)
        try:
            solution = solve(provider, needs, choices.cuda)
            return Resolved(needs, solution, pin(solution, files, direct, digests), provider, family, limits, ready)
        except BuildGoneError as gone:
            return resolve(needs, family.without(gone.filename), ready)
        except UnsolvableError as failure:
            raise NothingFitsError(unsolvable(failure, limits, family, pool, constraints)) from None

    try:
        found = with_torch(resolve(asked.needs, family, {}), resolve)
        found = with_assembler(with_ready_wheels(found, resolve), resolve)
        return _complete(frame, with_build_tools(found, [*wanted], resolve), [*wanted], python)
    except NothingFitsError as nothing:
        return _impossible(frame, nothing.conflict)


def _about_binding(solution: Solution, family: Family, limits: Limits) -> Iterator[Caution]:
    """Which machine costs the others something: a question, and an import, for several alone."""
    if len(family.machines) > 1:
        from envsolve.planner.binding import about_binding

        yield from about_binding(solution, family, limits)


def _impossible(frame: Plan, conflict: Conflict) -> Plan:
    return structs.replace(frame, status="impossible", conflict=conflict.facts, remedies=conflict.remedies)


def _specifiers(needs: Sequence[Need], environment: Environment) -> dict[str, SpecifierSet]:
    """What needs ask of each package, where their markers hold."""
    found: dict[str, SpecifierSet] = {}
    for requirement in (need.requirement for need in needs):
        if environment.wants(requirement.marker):
            name = canonicalize_name(requirement.name)
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return found


def _digests(needs: Sequence[Need], environment: Environment) -> dict[str, frozenset[str]]:
    """The files that needs name by hash, by package."""
    found: dict[str, frozenset[str]] = {}
    for need in needs:
        if need.hashes and environment.wants(need.requirement.marker):
            name = canonicalize_name(need.requirement.name)
            found[name] = found.get(name, frozenset()) | {*need.hashes}
    return found


def _complete(frame: Plan, found: Resolved, asked: Sequence[str], python: str) -> Plan:
    solution, pinned, provider, family = found.solution, found.pinned, found.provider, found.family
    machines, facts = family.machines, family.facts
    trees = {package.name: package.tree for package in pinned.packages if package.tree}
    chosen = [c.candidate for c in solution.chosen.values() if c.candidate.name not in trees]
    guessed = [c.label for c in chosen if not provider.metadata(c).exact]
    yanked = [
        c.candidate.label for c in solution.chosen.values() if c.candidate.file and c.candidate.file.yanked is not None
    ]
    cautions: list[Caution] = [
        *frame.warnings,
        *about_machines(frame.machines, python, facts),
        *about_compat(machines, facts),
        *about_systems(environments_of(machines, python)),
        *about_torch(solution, family),
        *_about_binding(solution, family, found.limits),
        *about_packages(pinned.packages, solution, guessed, yanked),
        *about_runtime(solution, family),
        *about_unjudged(solution, family, {one.name for one in compiled_in(found, asked)}),
        *about_indexes(pinned.unreached, frame.catalogue_date),
    ]
    if found.assembler:
        cautions.append(found.assembler.caution(found.version(found.assembler.package)))
    deciding = solution.chosen.get("torch") or solution.chosen.get(TRITON)
    option = deciding.candidate.option if deciding else None
    if option is not None and option.verdict.level is Level.NONE:
        return _impossible(frame, no_triton(option, family))
    unread = (deciding is not None and option is None) or any(tree.unread for tree in trees.values())
    known = not unread and (option is None or option.verdict.level.usable)
    judged = judged_builds(solution, machines, python, facts)
    toolchain, environment = None, dict(found.assembler.environment) if found.assembler else {}
    compiled, torchless = compiled_in(found, asked), "torch" not in solution.chosen
    unserved = extension_without_code(compiled, machines, family.catalogue)
    if unserved is not None:
        return _impossible(frame, unserved)
    taken = off_index(solution, family)
    if compiled or (taken and found.torch):
        toolchain, about = toolchain_of(found, compiled)
        cautions += about if compiled else ()
        cautions += about_missing_tools(toolchain, {p.name: p.version for p in pinned.packages})
        environment |= where_it_runs(toolchain)
        # Without torch it is the driver that says which nvcc fits; a compiler may be one that no fact is known of.
        lacking = (toolchain.nvcc is None and torchless) or toolchain.host_compiler is None
        known = known and not (toolchain.compiles and lacking)
    compiled_for = driver_of_code(toolchain.nvcc, machines, facts) if toolchain and toolchain.nvcc else None
    if found.torch:
        at_install = [one for one in compiled if one.when != "use"]
        cautions += about_elsewhere(at_install, found.torch, found.ready, family)
    cautions += about_off_index(pinned.packages, taken)
    cautions += about_other_sources(pinned.packages, compiled)
    cautions += about_trees(pinned.packages, family.catalogue)
    return structs.replace(
        frame,
        status="ok" if known else "unknown",
        cuda=solution.flavour,
        packages=pinned.packages,
        support=support_of(judged),
        driver=driver_need(judged) or compiled_for,
        environment=environment,
        toolchain=toolchain,
        warnings=tuple(dict.fromkeys(cautions)),
    )
