"""The plan of conda packages: life of the machines, virtual packages, solve, and what to say about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace
from packaging.requirements import Requirement

from envsolve.advice.conda import Attempt, refused
from envsolve.advice.refusals import impossible_machine, unserved_system
from envsolve.facts.builds import ANY, Build, CondaChannel
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.machine.model import Gpu, Machine
from envsolve.packages.conda_inputs import of_requirement
from envsolve.planning.pinning import Judged, driver_need, support_of
from envsolve.planning.plan import CondaPin, CondaTerms, Plan, Support
from envsolve.planning.request import Request
from envsolve.planning.warnings import about_compat, about_machines
from envsolve.rules.conda import (
    Candidate,
    CondaAsked,
    CondaJudge,
    JudgedBuild,
    Spec,
    VirtualPackage,
    subdir_of,
    variant_of,
)
from envsolve.rules.judge import as_judged, python_of
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON, chosen_ptxas
from envsolve.rules.platform import admits_python, libc_of
from envsolve.solve.conda import Question, Solution, Solver, virtual_packages
from envsolve.solve.conda_channels import Channels, UnsolvableError
from envsolve.solve.limits import by_kind
from envsolve.solve.outcome import Conflict, ConflictFact, Fix, PlannedPackage, PlanWarning
from envsolve.toolchain.model import SITE_PACKAGES
from envsolve.values import CudaVersion, PythonVersion

# What a user should know about a conda plan that is otherwise good.


_HOSTS = ("https://conda.anaconda.org/", "http://conda.anaconda.org/", "https://anaconda.org/")
_PROVE = "prove it once installed, on the machine: envsolve verify --prefix DIR"


def about_channels(channels: Sequence[str], catalogue: Catalogue) -> Iterator[PlanWarning]:
    """Channels that ended, that have terms, or that do not mix with others of the list."""
    named = {channel: record for channel in channels if (record := _known(channel, catalogue.conda_channels))}
    for channel, record in named.items():
        yield PlanWarning("channel", f"the channel {channel} {record.says}", record.remedy)
        others = [other for other in channels if channel_name(other) in record.clashes]
        if others:
            text = f"the channels {channel} and {' and '.join(others)} are mixed: {record.clash}"
            yield PlanWarning("channels-mixed", text, record.remedy)


def channel_name(channel: str) -> str:
    """A channel's name by its address: ``https://conda.anaconda.org/pytorch`` is ``pytorch``."""
    address = channel.rstrip("/")
    host = next((host for host in _HOSTS if address.startswith(host)), "")
    return address.removeprefix(host)


def channel_address(channel: str, catalogue: Catalogue) -> str:
    """What rattler is to ask: of ``defaults``, which is a list of channels by another name, the first of them."""
    record = _known(channel, catalogue.conda_channels)
    return record.addresses[0] if record and record.addresses and channel == record.name else channel


def about_virtual(virtual: Sequence[VirtualPackage]) -> Iterator[PlanWarning]:
    """What the solver was told that the machines' descriptions leave open."""
    for package in virtual:
        if package.assumed and package.name == "__cuda":
            text = f"{package.assumed}; it was solved as if it were for CUDA {package.version}"
            yield PlanWarning("cuda-assumed", text, "name it: --driver VERSION (nvidia-smi shows it)")


def about_builds(solution: Solution) -> Iterator[PlanWarning]:
    """Builds that are not known to run, or whose Triton does not, and packages that stay on the CPU."""
    for judged in solution.judged.values():
        if judged.candidate.name == "libtorch" and "pytorch" in solution.judged:
            continue
        name = f"{judged.candidate.name} {judged.candidate.version} ({judged.candidate.build})"
        if not judged.described and judged.build.cuda is not None:
            text = f"what GPU code {name} carries is not in the catalogue; whether it runs here is not known"
            yield PlanWarning("not-judged", text, f"envsolve index update, and plan again; or {_PROVE}")
        for reason in judged.verdict.reasons:
            if reason.rule.startswith("triton") and reason.ok is False:
                text = f"{reason.text}; torch itself runs; torch.compile and Triton kernels do not"
                yield PlanWarning("triton-limited", text, None)
    for name in solution.on_cpu:
        text = f"{name} has a CUDA variant, but none that goes with the rest; its CPU variant was taken"
        yield PlanWarning("cpu-companion", text, f"ask for another version of {name}")
    unjudged = sorted(solution.variants - solution.judged.keys())
    if unjudged:
        text = f"what GPU code {', '.join(unjudged)} carries is not in the catalogue; it was not judged"
        yield PlanWarning("not-judged", text, _PROVE)


def undecided(solution: Solution) -> JudgedBuild | None:
    """A judged build of which it is not known whether it runs; None where all are known to."""
    return next((one for one in solution.judged.values() if not one.verdict.level.usable), None)


def _known(channel: str, records: Sequence[CondaChannel]) -> CondaChannel | None:
    name, address = channel_name(channel), channel.rstrip("/")
    return next((r for r in records if fnmatchcase(name, r.name) or address in r.addresses), None)


# Where the ptxas of cuda-nvcc-tools lies in a conda environment.
_PTXAS = f"{SITE_PACKAGES}/../../../bin/ptxas"
_CUDA_VERSION = "cuda-version"


def make_conda_plan(
    asked: CondaAsked,
    machines: Sequence[Machine],
    request: Request,
    catalogue: Catalogue,
    channels: Channels,
    names: Sequence[str],
) -> Plan:
    """Plan a conda environment that is good on every one of the machines.

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
    refusal = unserved_system(judged) or impossible_machine(judged, facts, catalogue) or _unserved(judged)
    if refusal is not None:
        return _impossible(frame, refusal)
    virtual = virtual_packages(judged, facts)
    specs = tuple(_with_choices(asked, judged, request))
    question = Question(specs, asked.constraints, virtual, subdir_of(judged[0].platform))
    solver = Solver(channels, CondaJudge(judged, facts, catalogue.conda))
    try:
        solution = solver.solve(question)
    except UnsolvableError as failure:
        return _impossible(frame, refused(Attempt(question, asked.specs, judged, solver, facts, catalogue), failure))
    conda = CondaJudge(judged, facts, catalogue.conda)
    lines = tuple(_judged(solution, judged, conda))
    python = _python(solution)
    cautions = (
        *frame.warnings,
        *about_machines(machines, python or "any", facts),
        *about_compat(judged, facts),
        *about_virtual(virtual),
        *about_builds(solution),
    )
    terms = CondaTerms(
        channels=tuple(names),
        subdir=question.subdir,
        virtual={package.name: str(package) for package in virtual},
        pins=tuple(_lasting(solution, specs)),
    )
    return replace(
        frame,
        status="unknown" if undecided(solution) else "ok",
        python=python,
        cuda=_flavour(solution),
        packages=tuple(sorted(_packages(solution, specs), key=lambda package: package.name)),
        support=tuple(_support(lines)),
        driver=driver_need(lines),
        environment=dict(_assembler(solution, judged, facts)),
        warnings=tuple(dict.fromkeys(cautions)),
        conda=terms,
    )


def _impossible(frame: Plan, conflict: Conflict) -> Plan:
    return replace(frame, status="impossible", conflict=conflict.facts, remedies=conflict.remedies)


def _unserved(machines: Sequence[Machine]) -> Conflict | None:
    """Why conda serves one of the machines not at all, or all of them not together."""
    if any((libc := libc_of(machine.platform)) and libc[0] == "musl" for machine in machines):
        fact = "the machine's libc is musl, and conda packages for Linux are built for glibc"
        return Conflict((ConflictFact(fact),), (Fix("run in a container with glibc"),))
    subdirs = sorted({subdir_of(machine.platform) for machine in machines})
    if len(subdirs) > 1:
        fact = f"the machines are of several systems ({', '.join(subdirs)}), whose packages are other files"
        return Conflict((ConflictFact(fact),), (Fix("plan for each system apart"),))
    return None


def _with_choices(asked: CondaAsked, machines: Sequence[Machine], request: Request) -> Iterator[Spec]:
    """The specs of the request, with the Python and the CUDA that are chosen beside them.

    ``--python`` replaces a ``python`` spec of the request, but not what the projects require.
    """
    python = request.python
    if python is None and all(spec.name != "python" for spec in asked.specs):
        own = python_of(machines)
        python = own if own and admits_python(asked.requires_python, own) else None
    yield from (spec for spec in asked.specs if spec.name != "python" or request.python is None)
    if asked.requires_python:
        yield of_requirement(Requirement(f"python{asked.requires_python}"), "requires-python", {})
    if python:
        yield Spec("python", f"{PythonVersion.parse(python)}.*", origin="the Python that was chosen")
    if request.cuda and request.cuda != "cpu":
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
    for told in support_of(lines):
        yield replace(told, package="pytorch") if told.package == "torch" else told


def _python(solution: Solution) -> str | None:
    found = next((package.version for package in solution.packages if package.name == "python"), None)
    return str(PythonVersion.parse(found)) if found else None


def _flavour(solution: Solution) -> str | None:
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
    """What gives the solution again: what was asked, every CUDA variant, and the CUDA version."""
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

    conda-forge's Triton looks for ``ptxas`` on PATH, and for the second one that newer releases run on newer cards it
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
