"""The plan: life of the machine, Python, solve, files, and what to say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.catalogue.load import Catalogue
from envsolve.compat.facts import Facts
from envsolve.compat.forward import lifted
from envsolve.compat.settle import as_judged
from envsolve.compat.triton import TRITON
from envsolve.compat.verdict import Level
from envsolve.compat.versions import minor
from envsolve.errors import IndexUnavailableError
from envsolve.index.client import IndexClient
from envsolve.machine.model import Machine
from envsolve.plan import Caution, Plan, Toolchain
from envsolve.planner.assembler import Assembler, assemblers
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
from envsolve.planner.pinning import Pinned, pin
from envsolve.planner.python import choose_python
from envsolve.planner.refusal import extension_without_code, impossible_machine, no_triton, unserved_system, unsolvable
from envsolve.planner.sources import Compiled, about_other_sources, compiled_packages, compiled_when_used
from envsolve.planner.support import driver_need, driver_of_code, judged_builds, support_of
from envsolve.planner.toolchain import about_missing_tools, build_needs, toolchain_for, where_it_runs
from envsolve.resolve.cutoff import cutoff_of
from envsolve.resolve.direct import DirectReferences
from envsolve.resolve.environment import Environment, environments_of
from envsolve.resolve.family import Family, Option
from envsolve.resolve.familyfiles import BuildGoneError, FamilyFiles
from envsolve.resolve.fleet import by_kind
from envsolve.resolve.kept import Kept
from envsolve.resolve.limits import Limits
from envsolve.resolve.outcome import Conflict
from envsolve.resolve.outside import Ready, ready, still_there
from envsolve.resolve.pool import Pool
from envsolve.resolve.provider import Provider
from envsolve.resolve.requirements import Asked, Need
from envsolve.resolve.solve import Solution, UnsolvableError, solve


@dataclass(frozen=True, slots=True)
class Choices:
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
    kept: Kept = field(default_factory=dict)


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
    family = replace(family, python=python)
    environment, *others = environments_of(judged, python)
    files = FamilyFiles(client, catalogue, python)
    wanted = _specifiers(asked.needs, environment)
    constraints = _specifiers(asked.constraints, environment)
    of_family = {n: s & constraints.get(n, SpecifierSet()) for n, s in wanted.items() if family.owns(n)}
    limits = Limits(of_family, choices.cuda)
    digests = _digests((*asked.needs, *asked.constraints), environment)
    pool = Pool(client, environment, digests, tuple(others), cutoff, choices.prereleases, choices.kept)
    client.prefetch(name for name in wanted if not family.owns(name))

    def resolve(needs: Sequence[Need], family: Family, ready: Ready) -> _Resolved:
        # Of a package whose files are named by hash, no other file may be taken.
        wheels = {name: some for name, some in still_there(ready, family).items() if name not in digests}
        provider = Provider(environment, family, pool, files, DirectReferences(client), client, constraints, wheels)
        try:
            solution = solve(provider, needs, choices.cuda)
            return _Resolved(needs, solution, pin(solution, files, digests), provider, family, limits, ready)
        except BuildGoneError as gone:
            return resolve(needs, family.without(gone.filename), ready)
        except UnsolvableError as failure:
            raise _NothingFitsError(unsolvable(failure, limits, family, pool)) from None

    try:
        found = _with_torch(resolve(asked.needs, family, {}), resolve)
        found = _with_assembler(_with_ready_wheels(found, resolve), resolve)
        return _complete(frame, _with_build_tools(found, [*wanted], resolve), [*wanted], python)
    except _NothingFitsError as nothing:
        return _impossible(frame, nothing.conflict)


@dataclass(frozen=True, slots=True)
class _Resolved:
    """What the solver chose, and what it chose from.

    Attributes:
        needs: What was asked, and what was added to it.
        ready: Wheels that are on no index, of packages that would be compiled.
        assembler: The ptxas that was added for Triton.
    """

    needs: Sequence[Need]
    solution: Solution
    pinned: Pinned
    provider: Provider
    family: Family
    limits: Limits
    ready: Ready
    assembler: Assembler | None = None

    @property
    def torch(self) -> Option | None:
        """The torch in the solution; None where there is none, or it was asked for by address."""
        chosen = self.solution.chosen.get("torch")
        return chosen.candidate.option if chosen else None

    def version(self, package: str) -> str | None:
        """The version of a package in the solution; None where it is not in it."""
        chosen = self.solution.chosen.get(package)
        return str(chosen.candidate.version) if chosen else None


_Resolve = Callable[[Sequence[Need], Family, Ready], _Resolved]


class _NothingFitsError(Exception):
    """The request has no answer."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__("nothing fits")
        self.conflict = conflict


def _with_torch(found: _Resolved, resolve: _Resolve) -> _Resolved:
    """The same with torch where something is compiled against it whose metadata does not say so.

    Raises:
        _NothingFitsError: No torch goes with it.
    """
    compiled = compiled_packages(found.pinned.packages, found.family.catalogue)
    projects = [one.project for one in compiled if one.project and one.needs_torch]
    if "torch" in found.solution.chosen or not projects:
        return found
    origin = f"compiling {', '.join(project.package for project in projects)}"
    needs = (Need(Requirement(f"torch{project.torch or ''}"), origin) for project in projects)
    return resolve((*found.needs, *needs), found.family, found.ready)


def _with_ready_wheels(found: _Resolved, resolve: _Resolve) -> _Resolved:
    """The same with wheels off the indexes for what would be compiled, where there are any for its very torch."""
    torch = found.torch
    if torch is None:
        return found
    compiled = compiled_packages(found.pinned.packages, found.family.catalogue)
    wheels = {one.name: ready(one.name, torch, found.family) for one in compiled}
    if not any(wheels.values()):
        return found
    try:
        again = resolve(found.needs, found.family, wheels)
    except _NothingFitsError:
        return found
    return again if again.torch and again.torch.identity == torch.identity else found


def _with_assembler(found: _Resolved, resolve: _Resolve) -> _Resolved:
    """The same with a ptxas out of a package, where Triton's own does not serve every card and torch stays as it is."""
    triton, family = found.version(TRITON), found.family
    if triton is None:
        return found
    for assembler in assemblers(triton, family.machines, family.facts, family.catalogue.compilers):
        try:
            facts = assembler.among(family.facts)
            again = resolve((*found.needs, *assembler.needs), replace(family, facts=facts), found.ready)
        except (_NothingFitsError, IndexUnavailableError):
            continue
        if all(again.version(package) == found.version(package) for package in ("torch", TRITON)):
            return replace(again, assembler=assembler)
    return found


def _with_build_tools(found: _Resolved, asked: Sequence[str], resolve: _Resolve) -> _Resolved:
    """The same with what compiling its sources takes, the nvcc included where packages have it.

    So it stands in the lock with the rest, and what is compiled with it is the same everywhere.
    """
    compiled = _compiled(found, asked)
    if not compiled:
        return found
    toolchain, _ = _toolchain(found, compiled)
    kept = ("torch", TRITON, *(one.name for one in compiled))
    # An index of one's own may have no nvcc.
    for needs in (build_needs(toolchain), build_needs(replace(toolchain, nvcc_from=None))):
        try:
            again = resolve((*found.needs, *needs), found.family, found.ready)
        except (_NothingFitsError, IndexUnavailableError):
            continue
        if all(again.version(package) == found.version(package) for package in kept):
            return replace(again, assembler=found.assembler)
    return found


def _compiled(found: _Resolved, asked: Sequence[str]) -> tuple[Compiled, ...]:
    """What compiles CUDA code against the torch of a solution, or needs none."""
    packages, catalogue = found.pinned.packages, found.family.catalogue
    compiled = (*compiled_packages(packages, catalogue), *compiled_when_used(packages, asked, catalogue))
    if "torch" not in found.solution.chosen:
        return tuple(one for one in compiled if one.project and not one.needs_torch)
    # Of a torch that was asked for by address nothing is known.
    return compiled if found.torch else ()


def _toolchain(found: _Resolved, compiled: Sequence[Compiled]) -> tuple[Toolchain, tuple[Caution, ...]]:
    torch, family = found.torch, found.family
    known = [driver.cuda if (driver := lifted(m, family.facts.forward)) else None for m in family.machines]
    versions = [cuda for cuda in known if cuda]
    driver_cuda = min(versions, key=minor) if versions and len(versions) == len(known) else None
    return toolchain_for(compiled, torch.build if torch else None, family.machines, driver_cuda, family.catalogue)


def _about_binding(solution: Solution, family: Family, limits: Limits) -> Iterator[Caution]:
    """Which machine costs the others something: a question, and an import, for several alone."""
    if len(family.machines) > 1:
        from envsolve.planner.binding import about_binding

        yield from about_binding(solution, family, limits)


def _impossible(frame: Plan, conflict: Conflict) -> Plan:
    return replace(frame, status="impossible", conflict=conflict.facts, remedies=conflict.remedies)


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


def _complete(frame: Plan, found: _Resolved, asked: Sequence[str], python: str) -> Plan:
    solution, pinned, provider, family = found.solution, found.pinned, found.provider, found.family
    machines, facts = family.machines, family.facts
    guessed = [c.candidate.label for c in solution.chosen.values() if not provider.metadata(c.candidate).exact]
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
        *about_unjudged(solution, family, {one.name for one in _compiled(found, asked)}),
        *about_indexes(pinned.unreached, frame.catalogue_date),
    ]
    if found.assembler:
        cautions.append(found.assembler.caution(found.version(found.assembler.package)))
    deciding = solution.chosen.get("torch") or solution.chosen.get(TRITON)
    option = deciding.candidate.option if deciding else None
    if option is not None and option.verdict.level is Level.NONE:
        return _impossible(frame, no_triton(option, family))
    unread = deciding is not None and option is None
    known = not unread and (option is None or option.verdict.level.usable)
    judged = judged_builds(solution, machines, python, facts)
    toolchain, environment = None, dict(found.assembler.environment) if found.assembler else {}
    compiled = _compiled(found, asked)
    unserved = extension_without_code(compiled, machines, family.catalogue)
    if unserved is not None:
        return _impossible(frame, unserved)
    taken = off_index(solution, family)
    if compiled or (taken and found.torch):
        toolchain, about = _toolchain(found, compiled)
        cautions += about if compiled else ()
        cautions += about_missing_tools(toolchain, {p.name: p.version for p in pinned.packages})
        environment |= where_it_runs(toolchain)
    compiled_for = driver_of_code(toolchain.nvcc, machines, facts) if toolchain and toolchain.nvcc else None
    if found.torch:
        at_install = [one for one in compiled if one.when != "use"]
        cautions += about_elsewhere(at_install, found.torch, found.ready, family)
    cautions += about_off_index(pinned.packages, taken)
    cautions += about_other_sources(pinned.packages, compiled)
    return replace(
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
