"""The plan: life of the machine, Python, solve, files, and what to say about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.advice.published import without_flavour
from envsolve.advice.refusals import (
    extension_without_code,
    impossible_machine,
    no_triton,
    python_not_allowed,
    unserved_system,
    unsolvable,
)
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from envsolve.packages.client import IndexClient
from envsolve.packages.requirements import Asked, Need
from envsolve.planning.pinning import driver_need, driver_of_code, judged_builds, pin, support_of
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from envsolve.planning.rounds import (
    NothingFitsError,
    Resolved,
    compiled_in,
    toolchain_of,
    with_assembler,
    with_build_tools,
    with_ready_wheels,
    with_torch,
)
from envsolve.planning.warnings import (
    about_compat,
    about_elsewhere,
    about_indexes,
    about_machines,
    about_off_index,
    about_packages,
    about_python,
    about_runtime,
    about_systems,
    about_torch,
    about_unjudged,
    off_index,
)
from envsolve.rules.judge import as_judged, python_of
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON
from envsolve.rules.platform import Environment, admits_python, environments_of, python_tag
from envsolve.rules.verdict import Level
from envsolve.solve.candidate_selector import Pool, Ready, still_there
from envsolve.solve.family import Family, Option, in_order
from envsolve.solve.files import BuildGoneError, DirectReferences, FamilyFiles
from envsolve.solve.limits import Fleet, Limits, by_kind
from envsolve.solve.outcome import Caution, Conflict
from envsolve.solve.preferences import cutoff_of, versions_kept
from envsolve.solve.provider import Provider
from envsolve.solve.resolver import Solution, UnsolvableError, solve
from envsolve.toolchain.model import about_other_sources, about_trees
from envsolve.toolchain.plan import about_missing_tools, where_it_runs
from envsolve.values import PythonVersion

# Which Python a plan is for, if neither the request nor the machine names one.


def choose_python(asked: Asked, machines: Sequence[Machine], family: Family) -> str:
    """Return the machine's own Python or, if the projects do not allow it, the first with builds of what is asked for.

    The builds must run there. If none do, builds that are only published for a Python will do, since a refusal should
    not be about a Python that nobody asked for.

    Args:
        asked: Requirements; their ``requires-python`` limits the choice.
        machines: The machines of the plan. Of the Pythons, those installed on all of them come first.
        family: The torch family on the machines, judged without regard to Python.
    """
    own = python_of(machines)
    if own and admits_python(asked.requires_python, own):
        return own
    installed = [{str(PythonVersion.parse(one.version)) for one in m.pythons} for m in machines if m.pythons]
    allowed = [python for python in family.catalogue.pythons if python in family.pythons]
    pythons = sorted(
        allowed or family.catalogue.pythons, key=lambda python: not all(python in some for some in installed)
    )
    wanted = [(canonicalize_name(n.requirement.name), n.requirement.specifier) for n in asked.needs]
    of_family = [(name, specifier) for name, specifier in wanted if family.owns(name)]
    running = (p for p in pythons if all(_runs(replace(family, python=p), *demand) for demand in of_family))
    published = (p for p in pythons if all(_published(family, p, *demand) for demand in of_family))
    return next(running, None) or next(published, None) or pythons[0]


def _runs(family: Family, name: str, specifier: SpecifierSet) -> bool:
    return any(option.matches(specifier) for option in family.options(name))


def _published(family: Family, python: str, name: str, specifier: SpecifierSet) -> bool:
    """Whether what is asked for has a build for a Python; what no build meets is asked for in any flavour."""
    options = family.judged(name)
    met = [o for o in options if o.matches(specifier)] or [o for o in options if o.matches(without_flavour(specifier))]
    return any(python_tag(build.pythons, python) for option in met for build in option.builds)


# Which of several machines cost the others something, and what those would have without them.


def about_binding(solution: Solution, family: Family, limits: Limits) -> Iterator[Caution]:
    """Machines without which a better torch would be chosen; nothing where something else decides."""
    torch = solution.chosen.get("torch")
    chosen = torch.candidate.option if torch else None
    if chosen is None or len(family.machines) < 2:
        return
    newest = max(Version(option.version.public) for option in family.judged("torch"))
    if chosen.verdict.triton and Version(chosen.version.public) == newest:
        return  # nobody could have more
    fleet = Fleet(family, limits)
    best = fleet.best(range(len(family.machines)))
    if best is None or best.identity != chosen.identity:
        return
    for binding in fleet.bindings(lambda other: _gain(chosen, other) is not None):
        text = f"without {binding.held}, {_gain(chosen, binding.torch)} would run on {binding.others}"
        yield Caution("machine-binds", text, "plan for it apart from the others")


def _gain(chosen: Option, other: Option) -> str | None:
    """What another torch has over the chosen one; None where it is no better, or only of another flavour."""
    if in_order((chosen, other), "torch")[0] is not other:
        return None
    if Version(other.version.public) > Version(chosen.version.public):
        return other.label
    return f"{other.label} with its Triton" if other.verdict.triton and not chosen.verdict.triton else None


def make_plan(
    asked: Asked, machines: Sequence[Machine], request: Request, catalogue: Catalogue, client: IndexClient
) -> Plan:
    """Plan an environment that is good on every one of the machines.

    Args:
        asked: Requirements and constraints.
        machines: At least one; what the catalogue knows of them filled in.
        request: Its Python, variant, cutoff, pre-releases and versions to keep count here.
        catalogue: The facts.
        client: The indexes.

    Returns:
        A plan of status ``ok`` or ``unknown``, or one of status ``impossible`` that says why.

    Raises:
        IndexUnavailableError: An index that only it can answer for failed.
    """
    facts, kept = Facts.of(catalogue), versions_kept(request.keep)
    cutoff = cutoff_of(request.exclude_newer) if request.exclude_newer else None
    judged = tuple(as_judged(machine, request.cuda, catalogue.drivers) for machine, *_ in by_kind(machines))
    family = Family(catalogue, facts, judged, None, cutoff, kept=kept, requires_python=asked.requires_python)
    python = request.python or choose_python(asked, machines, family)
    frame = Plan(
        warnings=(
            *(Caution("set-aside", note) for note in asked.notes),
            *(about_python(asked.requires_python, machines, python) if request.python is None else ()),
        ),
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
    limits = Limits(of_family, request.cuda)
    if not admits_python(asked.requires_python, python):
        return _impossible(frame, python_not_allowed(family, limits))
    digests = _digests((*asked.needs, *asked.constraints), environment)
    pool = Pool(client, environment, digests, tuple(others), cutoff, request.prereleases, kept)
    client.prefetch(name for name in wanted if not family.owns(name))

    def resolve(needs: Sequence[Need], family: Family, ready: Ready) -> Resolved:
        # Of a package whose files are named by hash, no other file may be taken.
        wheels = {name: some for name, some in still_there(ready, family).items() if name not in digests}
        provider = Provider(environment, family, pool, files, direct, client, constraints, wheels)
        try:
            solution = solve(provider, needs, request.cuda)
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
