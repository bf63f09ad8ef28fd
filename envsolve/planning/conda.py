"""The plan of conda packages: driver support of the machines, virtual packages, solve, and warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from packaging.requirements import Requirement

from envsolve.advice.conda import (
    Attempt,
    about_channels,
    about_conda_builds,
    about_virtual,
    conda_channel,
    refused,
    unserved_by_conda,
    without_channel,
)
from envsolve.advice.refusals import impossible_machine, unserved_system
from envsolve.errors import IndexUnavailableError
from envsolve.facts.builds import ANY, Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.machine.model import Gpu, Machine
from envsolve.packages.conda_inputs import CondaAsked, of_requirement
from envsolve.planning.pinning import Judged, driver_need, support_of
from envsolve.planning.plan import CondaPin, CondaTerms, Plan, Support
from envsolve.planning.request import Request
from envsolve.planning.warnings import about_compat, about_machines
from envsolve.rules.conda import Candidate, CondaJudge, Spec, subdir_of, variant_of
from envsolve.rules.judge import as_judged, python_of
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON, chosen_ptxas
from envsolve.rules.platform import admits_python
from envsolve.solve.conda import Question, Solution, Solver, virtual_packages
from envsolve.solve.conda_channels import Channels, UnsolvableError
from envsolve.solve.limits import by_kind
from envsolve.solve.outcome import Conflict, PlannedPackage, PlanWarning
from envsolve.toolchain.model import SITE_PACKAGES
from envsolve.values import CudaVersion, PythonVersion

# Where the ptxas of cuda-nvcc-tools lies in a conda environment.
_PTXAS = f"{SITE_PACKAGES}/../../../bin/ptxas"
_CUDA_VERSION = "cuda-version"


def channel_address(channel: str, catalogue: Catalogue) -> str:
    """The URL of a channel for rattler; for ``defaults``, an alias of several channels, the first of them."""
    record = conda_channel(channel, catalogue.conda_channels)
    return record.addresses[0] if record and record.addresses and channel == record.name else channel


def make_conda_plan(
    asked: CondaAsked,
    machines: Sequence[Machine],
    request: Request,
    catalogue: Catalogue,
    channels: Channels,
    names: Sequence[str],
) -> Plan:
    """Plan a conda environment that works on each of the machines.

    Args:
        asked: Match specs and constraints.
        machines: At least one; what the catalogue knows of them filled in.
        request: Fixed beforehand.
        catalogue: The facts.
        channels: Where packages come from.
        names: The channels as the user named them.

    Returns:
        A plan of status ``ok`` or ``unknown``, or one of status ``impossible`` that says why.

    Raises:
        IndexUnavailableError: A channel could not be read.
    """
    facts = Facts.of(catalogue)
    judged = tuple(as_judged(machine, request.cuda, catalogue.drivers) for machine, *_ in by_kind(machines))
    frame = Plan(
        machines=tuple(machines),
        requirements=tuple(map(str, asked.specs)),
        warnings=(*(PlanWarning("set-aside", note) for note in asked.notes), *about_channels(names, catalogue)),
        catalogue_date=catalogue.date,
        own_catalogue_date=catalogue.own_date,
    )
    refusal = unserved_system(judged) or impossible_machine(judged, facts, catalogue) or unserved_by_conda(judged)
    if refusal is not None:
        return impossible(frame, refusal)
    virtual = virtual_packages(judged, facts)
    specs = tuple(_with_choices(asked, judged, request))
    question = Question(specs, asked.constraints, virtual, subdir_of(judged[0].platform))
    conda = CondaJudge(judged, facts, catalogue.conda)
    solver = Solver(channels, conda)
    try:
        solution = solver.solve(question)
    except UnsolvableError as failure:
        return impossible(frame, refused(Attempt(question, asked.specs, judged, solver, facts, catalogue), failure))
    except IndexUnavailableError as unread:
        pip = [need.requirement for need in asked.pip.needs]
        raise without_channel(unread, asked.specs, names, conda, question.subdir, catalogue, pip) from None
    lines = tuple(_judged(solution, judged, conda))
    python = _python(solution)
    cautions = (
        *frame.warnings,
        *about_machines(machines, python or "any", facts),
        *about_compat(judged, facts),
        *about_virtual(virtual),
        *about_conda_builds(solution),
    )
    terms = CondaTerms(
        channels=tuple(names),
        subdir=question.subdir,
        virtual={package.name: str(package) for package in virtual},
        pins=tuple(_lasting(solution, specs)),
    )
    return replace(
        frame,
        status="ok" if all(one.verdict.level.usable for one in solution.judged.values()) else "unknown",
        python=python,
        cuda=_variant(solution),
        packages=tuple(sorted(_packages(solution, specs), key=lambda package: package.name)),
        support=tuple(_support(lines)),
        driver=driver_need(lines),
        environment=dict(_assembler(solution, judged, facts)),
        warnings=tuple(dict.fromkeys(cautions)),
        conda=terms,
    )


def impossible(plan: Plan, conflict: Conflict) -> Plan:
    """The plan as a refusal."""
    # A plan that the pip part made impossible must not keep the packages of its conda part.
    return Plan(
        status="impossible",
        machines=plan.machines,
        python=plan.python,
        requirements=plan.requirements,
        warnings=plan.warnings,
        conflict=conflict.facts,
        remedies=conflict.remedies,
        catalogue_date=plan.catalogue_date,
        own_catalogue_date=plan.own_catalogue_date,
    )


def _with_choices(asked: CondaAsked, machines: Sequence[Machine], request: Request) -> Iterator[Spec]:
    """The specs of the request, with the Python and the CUDA that are chosen beside them.

    ``--python`` replaces a ``python`` spec of the request, but not what the projects require.
    """
    python = request.python
    if python is None and all(spec.name != "python" for spec in asked.specs):
        own = python_of(machines)
        python = own if own and admits_python(asked.requires_python, own) else None
    # An environment.yml pins a Python for its author; --python is what the person in front of it wants.
    yield from (spec for spec in asked.specs if spec.name != "python" or request.python is None)
    if asked.requires_python:
        yield of_requirement(Requirement(f"python{asked.requires_python}"), "requires-python", {})
    if python:
        yield Spec("python", f"{PythonVersion.parse(python)}.*", origin="the chosen Python")
    if request.cuda and request.cuda != "cpu":
        # cu126 is 12.6 and cu118 is 11.8: the last digit is the minor.
        digits = request.cuda.removeprefix("cu")
        yield Spec(_CUDA_VERSION, f"{digits[:-1]}.{digits[-1]}.*", origin=f"--cuda {request.cuda}")


def _judged(solution: Solution, machines: Sequence[Machine], conda: CondaJudge) -> Iterator[Judged]:
    """The judged builds on every GPU of every machine; Triton's kernels among them."""
    torch = solution.judged.get("pytorch") or solution.judged.get("libtorch")
    if torch is None:
        return
    triton = next((package for package in solution.packages if package.name == TRITON), None)
    builds = [torch.build, *([_triton(triton)] if triton and torch.build.cuda else [])]
    for build in builds:
        for machine, judge in zip(machines, conda.judges(torch.build.cuda), strict=True):
            # A build without CUDA code has one verdict, however many GPUs the machine has.
            for gpu, verdict in zip(machine.gpus or (Gpu(),), judge.verdicts(build, None), strict=False):
                yield Judged(build, machine, gpu, verdict)


def _triton(package: Candidate) -> Build:
    return Build(
        package=TRITON,
        version=package.version,
        variant=ANY,
        platform="any",
        pythons=(),
        index="default",
        evidence=Evidence.DOCUMENTED,
        source="",
    )


def _support(lines: Sequence[Judged]) -> Iterator[Support]:
    """The levels, under conda's names; also of a build whose GPU code is not known, which other plans leave out."""
    for line in lines:
        if line.build.code is None and line.build.package != TRITON and line.build.cuda:
            name = line.gpu.name or "unknown GPU"
            yield Support("pytorch", name, line.gpu.compute_capability, line.verdict.level.value, None, None)
    # conda calls the package pytorch; the rules and the catalogue know it as torch.
    for told in support_of(lines):
        yield replace(told, package="pytorch") if told.package == "torch" else told


def _python(solution: Solution) -> str | None:
    found = next((package.version for package in solution.packages if package.name == "python"), None)
    return str(PythonVersion.parse(found)) if found else None


def _variant(solution: Solution) -> str | None:
    torch = solution.judged.get("pytorch") or solution.judged.get("libtorch")
    if torch is not None:
        return variant_of(torch.candidate)
    cuda = next((package.version for package in solution.packages if package.name == _CUDA_VERSION), None)
    return CudaVersion.parse(cuda).variant if cuda else None


def _packages(solution: Solution, specs: Sequence[Spec]) -> Iterator[PlannedPackage]:
    asked = {spec.name: str(spec) for spec in specs}
    there = {package.name for package in solution.packages}
    for package in solution.packages:
        judged = solution.judged.get(package.name)
        varies = package.name in solution.variants or package.name in solution.on_cpu or judged is not None
        askers = (f"{other.name} {other.version}" for other in solution.packages if package.name in other.needs)
        yield PlannedPackage(
            name=package.name,
            version=package.version,
            variant=variant_of(package) if varies else None,
            index=package.channel,
            filename=package.filename,
            url=package.url,
            hashes=package.hashes,
            kind="conda",
            requires=tuple(name for name in package.needs if name in there),
            why=((asked[package.name],) if package.name in asked else ()) + tuple(askers),
            size=package.size,
            evidence=judged.build.known("code").evidence.value if judged and judged.described else None,
        )


def _lasting(solution: Solution, specs: Sequence[Spec]) -> Iterator[CondaPin]:
    """Pins that give the solution again: the requirements, every CUDA variant, and the CUDA version."""
    asked = {spec.name for spec in specs}
    there = {package.name for package in solution.packages}
    for package in solution.packages:
        varies = package.name in solution.variants or package.name in solution.judged
        if package.name == "libtorch" and package.name not in asked and "pytorch" in there:
            continue  # pytorch names the one build that it goes with
        if package.name == "python":
            yield CondaPin(package.name, str(PythonVersion.parse(package.version)) + ".*")
        elif varies:
            yield CondaPin(package.name, package.version, lasting_build(package.build))
        elif package.name in asked or package.name == _CUDA_VERSION:
            yield CondaPin(package.name, package.version)


def lasting_build(build: str) -> str:
    """The pattern of a variant's build strings that stays right when it is built again: ``cuda129*``, ``cpu*``."""
    variant = re.search(r"cuda[\d.]*|cpu", build)
    if variant is None:
        return build
    return f"{'' if variant.start() == 0 else '*'}{variant[0]}*"


def _assembler(solution: Solution, machines: Sequence[Machine], facts: Facts) -> Iterator[tuple[str, str]]:
    """The variables with which Triton finds the environment's ptxas, also where the environment is not activated.

    conda-forge's Triton looks for ``ptxas`` on PATH, and for the second one that newer releases run on newer GPUs it
    looks under a name that no conda package has.
    """
    there = {package.name: package for package in solution.packages}
    release = facts.tritons.get(there[TRITON].version) if TRITON in there else None
    if release is None or "cuda-nvcc-tools" not in there:
        return
    cards = [gpu.cc for machine in machines for gpu in machine.gpus or () if gpu.cc]
    used = {ptxas.override for card in cards if (ptxas := chosen_ptxas(release, card))}
    for name in sorted(used if cards else {ptxas.override for ptxas in release.ptxas}):
        yield name, _PTXAS
