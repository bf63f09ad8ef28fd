"""Make the plan: driver support of the machine, Python, solve, files, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

from msgspec import structs
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
    about_elsewhere,
    about_indexes,
    about_off_index,
    about_places,
    about_torch_for_wheels,
    digests_of,
    driver_need,
    driver_of_code,
    fast_paths,
    judged_builds,
    off_index,
    pin,
    support_of,
)
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request, with_hidden_gpus
from envsolve.planning.rounds import (
    NothingFitsError,
    Resolved,
    compiled_in,
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
    about_machines,
    about_overrides,
    about_packages,
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
from envsolve.rules.platform import Environment, admits_python, environments_of
from envsolve.rules.verdict import Level
from envsolve.solve.candidate_selector import CandidateSelector, Ready, still_there
from envsolve.solve.claims import about_gpu_parts, about_optional, about_stand_in_triton
from envsolve.solve.family import Family, Option
from envsolve.solve.files import BuildGoneError, DirectReferences, FamilyFiles
from envsolve.solve.limits import Limits, about_binding, about_companions, by_kind
from envsolve.solve.outcome import Conflict, PlanWarning
from envsolve.solve.pins import choose_python, python_with_wheels
from envsolve.solve.preferences import named_variants, parse_exclude_newer, preferences_of
from envsolve.solve.provider import Provider
from envsolve.solve.resolver import Budget, Solution, UnsolvableError
from envsolve.toolchain.model import Compiled, Toolchain, about_other_sources, about_trees, is_unread

# Seconds, least and most rounds of a solve that only proves a remedy: pages and metadata are in memory by then.
_TRIAL = (8.0, 1_500, 3_000)


class _Refusal(NamedTuple):
    """A failed solve.

    Attributes:
        frame: The plan without packages.
        why: The reason, computed only on demand: with fixes that further solves have proved, or without these.
        opened: What the directories of the request require, in place of the directories.
    """

    frame: Plan
    why: Callable[[bool], Conflict]
    opened: tuple[Need, ...]


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
        return _with_wheels_of_old(answer, asked, request, catalogue, client)

    plans: dict[str, Plan] = {}

    @cache
    def fits(python: str) -> bool | None:
        choice = structs.replace(request, python=python)
        try:
            other = _answer(asked, machines, choice, catalogue, client, Budget(*_TRIAL))
        except EnvsolveError:
            return None
        if isinstance(other, Plan) and other.status != "impossible":
            plans[python] = other
        return python in plans

    # If any Python will do, the fixes of the first one are only needed if no other one fits.
    for proved in (False, True) if _is_free(request, machines) else (True,):
        conflict = answer.why(proved)
        if proved and not any(fix.unlocks or fix.pythons for fix in conflict.remedies):
            changed = structs.replace(asked, needs=answer.opened)
            other = _answer(changed, machines, request, catalogue, client) if changed.needs != asked.needs else None
            conflict = other.why(True) if isinstance(other, _Refusal) else conflict
        conflict = with_proved_pythons(conflict, fits, catalogue.pythons)
        if plans and _is_free(request, machines):
            first = next(iter(plans.values()))
            plan = _with_wheels_of_old(first, asked, request, catalogue, client, same_torch=False)
            text = f"the plan is for Python {plan.python}; nothing fits Python {answer.frame.python}"
            warning = PlanWarning("python-chosen", f"{text}: {conflict.facts[-1].fact}")
            return structs.replace(plan, warnings=(warning, *plan.warnings))
    return _impossible(answer.frame, conflict)


def _is_free(request: Request, machines: Sequence[Machine]) -> bool:
    """Whether neither the request nor the machines say which Python it is."""
    return request.python is None and python_of(machines) is None


def _with_wheels_of_old(
    plan: Plan, asked: Asked, request: Request, catalogue: Catalogue, client: IndexClient, *, same_torch: bool = True
) -> Plan:
    """The plan, for another Python if that has wheels of old releases which this one would have to build.

    What a dependency or a source tree pins is known only now. Torch stays, unless this Python is not the first choice.
    """
    built = {p.name: p.version for p in plan.packages if p.kind == "sdist" and p.index is not None}
    if not built or plan.python is None:
        return plan
    family = Family(catalogue, Facts.of(catalogue), plan.machines, None, requires_python=asked.requires_python)
    torch = any(package.name == "torch" for package in plan.packages)
    old, python = python_with_wheels(built, plan.python, plan.machines, family, client, needs_torch=torch)
    if not old or python == plan.python:
        return plan
    if _is_free(request, plan.machines):
        other = _answer(asked, plan.machines, structs.replace(request, python=python), catalogue, client)
        versions = [{p.name: p.version for p in one.packages} for one in (plan, other) if isinstance(one, Plan)]
        same = not same_torch or versions[0].get("torch") == versions[-1].get("torch")
        if isinstance(other, Plan) and other.status == plan.status and same:
            return other
    names = " and ".join(f"{name} {built[name]}" for name in old)
    text = f"{names} is older than Python {plan.python}, so building it may fail; Python {python} has wheels"
    warning = PlanWarning("older-than-python", text, f"plan with --python {python}, or allow newer versions")
    return structs.replace(plan, warnings=(*plan.warnings, warning))


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
    seen, hidden = with_hidden_gpus(machines, asked, request, catalogue)
    judged = tuple(as_judged(machine, request.cuda, catalogue.drivers) for machine, *_ in by_kind(seen))
    family = Family(
        catalogue, facts, judged, None, exclude_newer, preferences=preferences, requires_python=asked.requires_python
    )
    direct = DirectReferences(client)
    somewhere = environments_of(judged, catalogue.pythons[0])[0]
    opened = structs.replace(asked, needs=direct.opened(asked.needs, somewhere))
    python = request.python or choose_python(opened, machines, family, client)
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

    if refusal := unserved_system(machines) or impossible_machine(judged, facts, catalogue):
        return _impossible(frame, refusal)
    environment, *others = environments_of(judged, python)
    files = FamilyFiles(client, catalogue, python)
    named = named_variants(asked.sources, (environment, *others))
    wanted = _specifiers(asked.needs, environment)
    decisive = frozenset() if family.needs_torch(wanted) else frozenset(wanted)
    gone = files.missing(catalogue.family)
    family = structs.replace(family, python=python, gone=gone, named=named, decisive=decisive)
    constraints = _specifiers(asked.constraints, environment)
    of_family = {n: s & constraints.get(n, SpecifierSet()) for n, s in wanted.items() if family.owns(n)}
    limits = Limits(of_family, request.cuda)
    if not admits_python(asked.requires_python, python):
        return _Refusal(frame, lambda proved: python_not_allowed(family, limits), opened.needs)
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
            pinned = pin(solution, files, direct, digests, provider)
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
        return _Refusal(frame, nothing.conflict, opened.needs)
    declared = about_environments(asked.environments, (environment, *others))
    places = about_places(plan.packages, client, catalogue.family)
    sources = about_sources(asked.sources, plan.cuda, family)
    return structs.replace(plan, warnings=(*plan.warnings, *selector.about_left_out(), *places, *declared, *sources))


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
    judged = judged_builds(solution, family, python)
    toolchain: Toolchain | None = None
    about: list[PlanWarning] = []
    environment = dict(found.assembler.environment) if found.assembler else {}
    taken = off_index(solution, family)
    if compiled or (taken and found.torch):
        from envsolve.toolchain.plan import about_missing_tools, where_it_runs

        toolchain, cautions = toolchain_of(found, compiled)
        about += cautions if compiled else ()
        about += about_missing_tools(toolchain, {p.name: p.version for p in pinned.packages})
        environment |= where_it_runs(toolchain)
    compiled_for = driver_of_code(toolchain.nvcc, machines, facts) if toolchain and toolchain.nvcc else None
    if found.torch:
        at_install = [one for one in compiled if one.when != "use"]
        about += about_elsewhere(at_install, found.torch, found.ready, family, found.needs)
        about += about_torch_for_wheels(found.torch, found.needs, family)
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
    if _lacks_triton(found):
        return False
    if deciding is None and ("torch" in chosen or TRITON in chosen):
        return False  # it was asked for by URL
    if deciding is not None and not deciding.verdict.level.usable:
        return False
    if toolchain is None or not toolchain.compiles:
        return True
    # Without torch the driver decides which nvcc fits; there may be no facts about a host compiler.
    return toolchain.host_compiler is not None and (toolchain.nvcc is not None or "torch" in chosen)


def _lacks_triton(found: Resolved) -> bool:
    """Whether the request names Triton, whose kernels do not run: torch works without them, the request may not."""
    triton = found.solution.chosen.get(TRITON)
    option = triton.candidate.option if triton else None
    named = any(canonicalize_name(need.requirement.name) == TRITON for need in found.needs)
    return named and option is not None and option.verdict.level is Level.NONE and not found.family.wants_cpu


def _about_choice(frame: Plan, found: Resolved, compiled: Sequence[Compiled], python: str) -> Iterator[PlanWarning]:
    """Warnings about the machines and about the packages that were chosen for them."""
    solution, pinned, family = found.solution, found.pinned, found.family
    machines, facts = family.machines, family.facts
    yield from about_machines(frame.machines, python, facts, pinned.packages)
    yield from about_compat(machines, facts)
    yield from about_systems(environments_of(machines, python))
    yield from about_torch(solution, family, found.limits.asked.get("torch", SpecifierSet()))
    yield from about_binding(solution, family, found.limits)
    yield from about_companions(solution, family, found.limits)
    yield from about_packages(pinned.packages, solution, found.provider)
    yield from about_extras(solution, found.provider)
    yield from about_overrides(solution, found.provider)
    yield from about_runtime(solution, family)
    requested = {canonicalize_name(need.requirement.name) for need in found.needs}
    yield from about_gpu_parts(pinned.packages, requested, machines, family)
    yield from about_optional(solution.chosen, family)
    yield from about_stand_in_triton(pinned.packages, family)
    yield from about_unjudged(solution, family, {one.name for one in compiled})
    yield from about_indexes(pinned.unreached, frame.catalogue_date)
    if found.assembler:
        yield found.assembler.caution(found.version(found.assembler.package))
