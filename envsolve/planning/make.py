"""The plan: life of the machine, Python, solve, files, and what to say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.advice.refusals import (
    extension_without_code,
    impossible_machine,
    no_triton,
    python_not_allowed,
    unserved_system,
    unsolvable,
    with_proved_pythons,
)
from envsolve.advice.torch import about_environments, about_sources
from envsolve.errors import EnvsolveError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from envsolve.packages.client import IndexClient
from envsolve.packages.requirements import Asked, Need, overridden
from envsolve.planning.pinning import (
    digests_of,
    driver_need,
    driver_of_code,
    fast_paths,
    judged_builds,
    pin,
    support_of,
)
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from envsolve.planning.rounds import (
    NothingFitsError,
    Resolved,
    about_elsewhere,
    about_off_index,
    compiled_in,
    off_index,
    solved,
    toolchain_of,
    with_assembler,
    with_build_tools,
    with_ready_wheels,
    with_torch,
)
from envsolve.planning.warnings import (
    about_compat,
    about_extras,
    about_indexes,
    about_machines,
    about_overrides,
    about_packages,
    about_places,
    about_python,
    about_runtime,
    about_systems,
    about_torch,
    about_unjudged,
    asks_for_unjudged,
)
from envsolve.rules.judge import as_judged, python_of
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON
from envsolve.rules.platform import Environment, admits_python, environments_of, python_tag
from envsolve.rules.verdict import Level
from envsolve.solve.candidate_selector import CandidateSelector, Ready, still_there
from envsolve.solve.claims import about_gpu_parts, about_stand_in_triton
from envsolve.solve.family import Family, Option
from envsolve.solve.files import BuildGoneError, DirectReferences, FamilyFiles
from envsolve.solve.limits import Limits, about_binding, about_companions, by_kind, without_variant
from envsolve.solve.outcome import Conflict, PlanWarning
from envsolve.solve.preferences import parse_exclude_newer, preferences_of
from envsolve.solve.provider import Provider
from envsolve.solve.resolver import Budget, Solution, UnsolvableError
from envsolve.toolchain.model import Compiled, Toolchain, about_other_sources, about_trees, is_unread
from envsolve.toolchain.plan import about_missing_tools, where_it_runs
from envsolve.values import PythonVersion

# Seconds, least and most rounds of a solve that only proves a remedy: pages and metadata are in memory by then.
_TRIAL = (8.0, 1_500, 3_000)

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
    pythons = _candidate_pythons(machines, family)
    wanted = [(canonicalize_name(n.requirement.name), n.requirement.specifier) for n in asked.needs]
    # What the catalogue lacks in every variant says nothing about Pythons.
    of_family = [(n, s) for n, s in wanted if family.owns(n) and family.knows(n, without_variant(s))]
    running = (p for p in pythons if all(_runs(replace(family, python=p), *demand) for demand in of_family))
    published = (p for p in pythons if all(_published(family, p, *demand) for demand in of_family))
    return next(running, None) or next(published, None) or pythons[0]


def _candidate_pythons(machines: Sequence[Machine], family: Family) -> list[str]:
    """The Pythons that the projects allow (all, if they allow none of those with builds), installed ones first."""
    installed = [{str(PythonVersion.parse(one.version)) for one in m.pythons} for m in machines if m.pythons]
    known = family.catalogue.pythons
    allowed = [python for python in known if python in family.pythons]
    return sorted(allowed or known, key=lambda python: not all(python in some for some in installed))


def _runs(family: Family, name: str, specifier: SpecifierSet) -> bool:
    return any(option.matches(specifier) for option in family.options(name))


def _published(family: Family, python: str, name: str, specifier: SpecifierSet) -> bool:
    """Whether what is asked for has a build for a Python; what no build meets is asked for in any variant."""
    options = family.judged(name)
    met = [o for o in options if o.matches(specifier)] or [o for o in options if o.matches(without_variant(specifier))]
    return any(python_tag(build.pythons, python) for option in met for build in option.builds)


class _Refusal(NamedTuple):
    """That nothing fits; why is found out if somebody asks, since it takes further solves."""

    frame: Plan
    why: Callable[[], Conflict]


def make_plan(
    asked: Asked, machines: Sequence[Machine], request: Request, catalogue: Catalogue, client: IndexClient
) -> Plan:
    """Plan a request for machines.

    Args:
        asked: Requirements and constraints.
        machines: At least one; what the catalogue knows of them filled in.
        request: Its Python, variant, exclude_newer, pre-releases and versions to keep count here.
        catalogue: The facts.
        client: The indexes.

    Returns:
        A plan of status ``ok`` or ``unknown``, or one of status ``impossible`` that says why.

    Raises:
        IndexUnavailableError: An index that only it can answer for failed.
    """
    answer = _answer(asked, machines, request, catalogue, client)
    if isinstance(answer, Plan):
        return answer

    def fits(python: str) -> bool | None:
        choice = structs.replace(request, python=python)
        try:
            other = _answer(asked, machines, choice, catalogue, client, Budget(*_TRIAL))
        except EnvsolveError:
            return None
        return isinstance(other, Plan) and other.status != "impossible"

    return _impossible(answer.frame, with_proved_pythons(answer.why(), fits, catalogue.pythons))


def _answer(
    asked: Asked,
    machines: Sequence[Machine],
    request: Request,
    catalogue: Catalogue,
    client: IndexClient,
    budget: Budget | None = None,
) -> Plan | _Refusal:
    asked, overrides = overridden(asked)
    facts, preferences = Facts.of(catalogue), preferences_of(request.keep)
    exclude_newer = parse_exclude_newer(request.exclude_newer) if request.exclude_newer else None
    seen, hidden = _with_hidden_gpus(machines, asked, request, catalogue)
    judged = tuple(as_judged(machine, request.cuda, catalogue.drivers) for machine, *_ in by_kind(seen))
    family = Family(
        catalogue, facts, judged, None, exclude_newer, preferences=preferences, requires_python=asked.requires_python
    )
    python = request.python or choose_python(asked, machines, family)
    frame = Plan(
        warnings=(
            *(PlanWarning("set-aside", note) for note in asked.notes),
            *hidden,
            *(
                about_python(asked.requires_python, request.requires_python, machines, python)
                if request.python is None
                else ()
            ),
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
    environment, *others = environments_of(judged, python)
    files, direct = FamilyFiles(client, catalogue, python), DirectReferences(client)
    family = structs.replace(family, python=python, gone=files.missing(catalogue.family))
    wanted = _specifiers(asked.needs, environment)
    constraints = _specifiers(asked.constraints, environment)
    of_family = {n: s & constraints.get(n, SpecifierSet()) for n, s in wanted.items() if family.owns(n)}
    limits = Limits(of_family, request.cuda)
    if not admits_python(asked.requires_python, python):
        return _Refusal(frame, partial(python_not_allowed, family, limits))
    stand_ins = family.stand_ins(wanted)
    digests = digests_of((*asked.needs, *asked.constraints), environment)
    selector = CandidateSelector(
        client, environment, digests, tuple(others), exclude_newer, request.prereleases, preferences
    )
    client.prefetch(name for name in wanted if not family.owns(name))
    builds = request.metadata_builds(client, python)

    def resolve(needs: Sequence[Need], family: Family, ready: Ready) -> Resolved:
        # Of a package whose files are named by hash, no other file may be taken.
        wheels = {name: some for name, some in still_there(ready, family).items() if name not in digests}
        provider = Provider(environment, family, selector, files, direct, client, constraints, wheels)
        provider.overrides, provider.builds, provider.stand_ins = overrides, builds, stand_ins
        try:
            solution = solved(provider, selector, needs, request.cuda, budget)
            pinned = pin(solution, files, direct, digests, stand_ins)
            return Resolved(needs, solution, pinned, provider, family, limits, ready)
        except BuildGoneError as gone:
            return resolve(needs, family.without(gone.filename), ready)
        except UnsolvableError as failure:
            selector.refuse_unread(needs, family)

            def again(changed: Sequence[Need], each: Budget) -> Solution:
                return solved(provider, selector, changed, request.cuda, each)

            why = partial(unsolvable, failure, needs, again, limits, family, selector, constraints)
            raise NothingFitsError(why) from None

    try:
        found = with_torch(resolve(asked.needs, family, {}), resolve)
        found = with_assembler(with_ready_wheels(found, resolve), resolve)
        plan = _complete(frame, with_build_tools(found, [*wanted], resolve), [*wanted], python)
    except NothingFitsError as nothing:
        return _Refusal(frame, nothing.conflict)
    declared = about_environments(asked.environments, (environment, *others))
    places = about_places(plan.packages, client, catalogue.family)
    sources = about_sources(asked.sources, plan.cuda, family)
    return structs.replace(plan, warnings=(*plan.warnings, *selector.about_left_out(), *places, *declared, *sources))


def _with_hidden_gpus(
    machines: Sequence[Machine], asked: Asked, request: Request, catalogue: Catalogue
) -> tuple[tuple[Machine, ...], tuple[PlanWarning, ...]]:
    """The machines, with unknown GPUs where none is in sight although something says that one is meant.

    A login node, a container without GPU access and a CI runner show no GPU; a CPU plan for them would be a wrong yes.
    """
    needing = sorted(
        {
            name
            for name in (canonicalize_name(need.requirement.name) for need in asked.needs)
            if any(project.gpu_only for project in catalogue.source_projects if project.package == name)
            or ((builds := catalogue.builds(name)) and all((b.variant or "cpu").startswith("cu") for b in builds))
        }
    )
    found: list[Machine] = []
    warnings: list[PlanWarning] = []
    for machine in machines:
        bare = machine.gpus == () and not machine.accelerators and request.cuda is None
        if bare and (machine.driver is not None or needing):
            what = f"{' and '.join(needing)} only runs on a GPU" if needing else "the machine has a GPU driver"
            hint = "name the GPU: --target 'H100, driver 580'; --cuda cpu plans without one"
            warnings.append(PlanWarning("gpu-hidden", f"{what}, and no GPU was found", hint))
            machine = structs.replace(machine, gpus=None, accelerators=None)
        found.append(machine)
    return tuple(found), tuple(dict.fromkeys(warnings))


def _impossible(frame: Plan, conflict: Conflict) -> Plan:
    return structs.replace(frame, status="impossible", conflict=conflict.facts, remedies=conflict.remedies)


def _specifiers(needs: Sequence[Need], environment: Environment) -> dict[str, SpecifierSet]:
    """The specifiers of needs on each package, if their markers hold."""
    found: dict[str, SpecifierSet] = {}
    for requirement in (need.requirement for need in needs):
        if environment.wants(requirement.marker):
            name = canonicalize_name(requirement.name)
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return found


def _complete(frame: Plan, found: Resolved, asked: Sequence[str], python: str) -> Plan:
    """The plan of a solution; impossible if it would compile or run nothing on the GPUs."""
    solution, pinned, family = found.solution, found.pinned, found.family
    machines, facts = family.machines, family.facts
    compiled = compiled_in(found, asked)
    deciding = _deciding(solution)
    if deciding is not None and deciding.verdict.level is Level.NONE:
        return _impossible(frame, no_triton(deciding, family))
    if (unserved := extension_without_code(compiled, machines, family.catalogue)) is not None:
        return _impossible(frame, unserved)
    judged = judged_builds(solution, machines, python, facts)
    toolchain: Toolchain | None = None
    about: list[PlanWarning] = []
    environment = dict(found.assembler.environment) if found.assembler else {}
    taken = off_index(solution, family)
    if compiled or (taken and found.torch):
        toolchain, cautions = toolchain_of(found, compiled)
        about += cautions if compiled else ()
        about += about_missing_tools(toolchain, {p.name: p.version for p in pinned.packages})
        environment |= where_it_runs(toolchain)
    compiled_for = driver_of_code(toolchain.nvcc, machines, facts) if toolchain and toolchain.nvcc else None
    if found.torch:
        at_install = [one for one in compiled if one.when != "use"]
        about += about_elsewhere(at_install, found.torch, found.ready, family)
    warnings = (
        *frame.warnings,
        *_about_choice(frame, found, compiled, python),
        *about,
        *about_off_index(pinned.packages, taken),
        *about_other_sources(pinned.packages, compiled),
        *about_trees(pinned.packages, family.catalogue),
    )
    return structs.replace(
        frame,
        status="ok" if _is_known(found, toolchain, compiled) else "unknown",
        cuda=solution.variant,
        packages=pinned.packages,
        support=support_of(judged),
        fast_paths=fast_paths(judged, facts, family.catalogue),
        driver=driver_need(judged) or compiled_for,
        environment=environment,
        toolchain=toolchain,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _deciding(solution: Solution) -> Option | None:
    """The build that decides whether GPUs are used: torch, or Triton if it is planned without torch."""
    deciding = solution.chosen.get("torch") or solution.chosen.get(TRITON)
    return deciding.candidate.option if deciding else None


def _is_known(found: Resolved, toolchain: Toolchain | None, compiled: Sequence[Compiled]) -> bool:
    """Whether everything that decides whether the plan works is known."""
    chosen, deciding = found.solution.chosen, _deciding(found.solution)
    if any(is_unread(package, found.family.catalogue) for package in found.pinned.packages):
        return False
    if any(machine.gpus for machine in found.family.machines) and asks_for_unjudged(found, compiled):
        return False
    if deciding is None and ("torch" in chosen or TRITON in chosen):
        return False  # it was asked for by URL
    if deciding is not None and not deciding.verdict.level.usable:
        return False
    if toolchain is None or not toolchain.compiles:
        return True
    # Without torch the driver decides which nvcc fits; there may be no facts about a host compiler.
    return toolchain.host_compiler is not None and (toolchain.nvcc is not None or "torch" in chosen)


def _about_choice(frame: Plan, found: Resolved, compiled: Sequence[Compiled], python: str) -> Iterator[PlanWarning]:
    """Warnings about the machines and about the packages that were chosen for them."""
    solution, pinned, family = found.solution, found.pinned, found.family
    machines, facts = family.machines, family.facts
    yield from about_machines(frame.machines, python, facts, pinned.packages)
    yield from about_compat(machines, facts)
    yield from about_systems(environments_of(machines, python))
    yield from about_torch(solution, family)
    yield from about_binding(solution, family, found.limits)
    yield from about_companions(solution, family, found.limits)
    yield from about_packages(pinned.packages, solution, found.provider)
    yield from about_extras(solution, found.provider)
    yield from about_overrides(solution, found.provider)
    yield from about_runtime(solution, family)
    requested = {canonicalize_name(need.requirement.name) for need in found.needs}
    yield from about_gpu_parts(pinned.packages, requested, machines, family)
    yield from about_stand_in_triton(pinned.packages, family)
    yield from about_unjudged(solution, family, {one.name for one in compiled})
    yield from about_indexes(pinned.unreached, frame.catalogue_date)
    if found.assembler:
        yield found.assembler.caution(found.version(found.assembler.package))
