"""The reason why no conda plan exists, with changes that were tried first; and notes on a good one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from msgspec import structs
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from envsolve.advice.changes import known_drivers
from envsolve.errors import IndexUnavailableError
from envsolve.facts.builds import Build, CondaBuild, CondaChannel
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Machine, Platform
from envsolve.rules.conda import CondaJudge, JudgedBuild, Spec, VirtualPackage, as_build, subdir_of
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.driver import can_exist
from envsolve.rules.platform import libc_of, same_system
from envsolve.rules.verdict import Level, Verdict
from envsolve.solve.conda import Question, Solution, Solver, virtual_packages
from envsolve.solve.conda_channels import UnsolvableError
from envsolve.solve.outcome import Conflict, ConflictFact, Fix, PlanWarning
from envsolve.values import DriverVersion


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that has no solution, and the machines and channels that it was solved for.

    Attributes:
        asked: The part of the question that the user requested; the rest was added.
        machines: As they are judged.
        solver: That of these machines.
    """

    question: Question
    asked: tuple[Spec, ...]
    machines: tuple[Machine, ...]
    solver: Solver
    facts: Facts
    catalogue: Catalogue


def unserved_by_conda(machines: Sequence[Machine]) -> Conflict | None:
    """Why conda has no packages for one of the machines, or no common ones for all of them."""
    if any((libc := libc_of(machine.platform)) and libc[0] == "musl" for machine in machines):
        fact = "the machine's libc is musl, and conda packages for Linux are built for glibc"
        return Conflict((ConflictFact(fact),), (Fix("use a container with glibc"),))
    subdirs = sorted({subdir_of(machine.platform) for machine in machines})
    if len(subdirs) > 1:
        fact = f"the machines have different systems ({', '.join(subdirs)}), and conda has separate packages for each"
        return Conflict((ConflictFact(fact),), (Fix("plan for each system separately"),))
    return None


#: Verdicts that are shown for a channel that cannot be read.
_SHOWN = 5


def without_channel(
    failure: IndexUnavailableError,
    specs: Sequence[Spec],
    channels: Sequence[str],
    judge: CondaJudge,
    subdir: str,
    catalogue: Catalogue,
    pip: Sequence[Requirement] = (),
) -> IndexUnavailableError:
    """The failure of a channel with what the catalogue knows of the torch builds that were requested.

    Nothing is solved: which other packages the channel has is not known.

    Args:
        failure: Of the channel.
        specs: What was requested of the channels.
        channels: Their names.
        judge: For the machines.
        subdir: Theirs.
        catalogue: The facts.
        pip: What pip was to install over the conda packages.
    """
    asked = next((spec for spec in specs if spec.name in ("pytorch", "pytorch-gpu")), None)
    records = _records(asked, channels, catalogue) if asked else []
    verdicts: dict[str, str] = {}
    for record in sorted(records, key=lambda one: Version(one.version), reverse=True):
        build = as_build(record)
        verdict = judge.verdict(build)
        if record.subdir == subdir and (record.cuda or asked is None or asked.build):
            verdicts.setdefault(f"{record.channel}::pytorch {record.version} [{build.variant}]", _says(verdict))
    for build in _wheels(pip, judge.machines, catalogue):
        verdicts.setdefault(f"torch {build.version} [{build.variant}]", _says(judge.verdict(build)))
    if not verdicts:
        return failure
    lines = [f"  {name}: {says}" for name, says in list(verdicts.items())[:_SHOWN]]
    more = [f"  and {len(verdicts) - _SHOWN} more"] if len(verdicts) > _SHOWN else []
    text = "\n".join((f"{failure.message}; what the catalogue knows about the builds:", *lines, *more))
    return IndexUnavailableError(text, hint=failure.hint)


def _says(verdict: Verdict) -> str:
    reasons = "; ".join(reason.text for reason in verdict.failures)
    return f"does not run: {reasons}" if verdict.level is Level.NONE else f"{verdict.level.value} code"


def _wheels(asked: Sequence[Requirement], machines: Sequence[Machine], catalogue: Catalogue) -> Iterator[Build]:
    """The wheels of torch that requirements of pip pin, for the system of the machines."""
    specifiers = [
        one.specifier for one in asked if one.name == "torch" and any(s.operator == "==" for s in one.specifier)
    ]
    for build in catalogue.builds("torch") if specifiers else ():
        version = Version(f"{build.version}{build.local}")
        here = all(same_system(build.platform, machine.platform or Platform()) for machine in machines)
        if here and all(specifier.contains(version, prereleases=True) for specifier in specifiers):
            yield build


def _records(asked: Spec, channels: Sequence[str], catalogue: Catalogue) -> Sequence[CondaBuild]:
    """The builds of the channels that a spec allows. A mirror may have any name, and most likely is conda-forge's."""
    torch = [record for record in catalogue.conda if record.package == "pytorch"]
    # A spec may name a channel that the file does not list: pytorch::pytorch=2.1.0.
    known = {record.channel for record in torch}
    names = {channel.rstrip("/").rpartition("/")[2] for channel in (*channels, asked.channel or "")} & known
    return [record for record in torch if record.channel in (names or {"conda-forge"}) and _meets(record, asked)]


def _meets(record: CondaBuild, spec: Spec) -> bool:
    """Whether a record is of a version that a spec allows; specs that only conda reads allow all."""
    text = spec.version or ""
    if text[:1].isdigit():
        text = f"=={text.rstrip('*').rstrip('.')}.*"
    try:
        allowed = SpecifierSet("" if text == "*" else text)
    except InvalidSpecifier:
        return True
    return allowed.contains(record.version) and spec.channel in (None, record.channel)


def refused(attempt: Attempt, failure: UnsolvableError) -> Conflict:
    """The conflict: the rules' reasons if they leave no build, otherwise the solver's own."""
    builds = attempt.solver.builds(attempt.question.subdir).get("pytorch", ())
    asked = next((spec for spec in attempt.question.specs if spec.name in ("pytorch", "pytorch-gpu")), None)
    candidates = [one for one in builds if one.candidate.subdir == attempt.question.subdir]
    if asked and candidates and all(one.verdict.level is Level.NONE for one in candidates):
        facts = tuple(_reasons(candidates, attempt))
    else:
        facts = tuple(ConflictFact(line) for line in failure.lines)
    return Conflict(facts, tuple(_remedies(attempt)))


def _reasons(builds: Sequence[JudgedBuild], attempt: Attempt) -> Iterator[ConflictFact]:
    """The fewest reasons that rule out every CUDA build, or every build if none has CUDA; Triton rules out none."""
    left = [one for one in builds if one.build.cuda] or list(builds)
    while left:
        told = [{r.text: r for r in one.verdict.failures if not r.rule.startswith("triton")} for one in left]
        counts = Counter(text for reasons in told for text in reasons)
        if not counts:
            return
        text, _ = counts.most_common(1)[0]
        source = next(reasons[text] for reasons in told if text in reasons).source
        yield ConflictFact(text, attempt.catalogue.source_title(source))
        left = [one for one, reasons in zip(left, told, strict=True) if text not in reasons]


def _remedies(attempt: Attempt) -> Iterator[Fix]:
    single = [*_changes(attempt), *_drivers(attempt)]
    yield from single or _together(attempt)


def _changes(attempt: Attempt) -> Iterator[Fix]:
    """Each thing that was requested, in any version, or else not at all."""
    question, solver = attempt.question, attempt.solver
    for spec in question.specs:
        loose = replace(question, specs=tuple(Spec(one.name) if one == spec else one for one in question.specs))
        if (spec.version or spec.build) and (found := _tried(solver, loose)):
            yield Fix(f"relax {spec}", unlocks=_named(found))
        # A package that no channel here has, such as `pytorch-cuda` of the channel pytorch, is there in no version.
        elif spec in attempt.asked and len(attempt.asked) > 1 and (found := _tried(solver, question.without(spec))):
            yield Fix(f"leave out {spec.name}", unlocks=_named(found))


def _together(attempt: Attempt) -> Iterator[Fix]:
    """Change all requirements that no channel satisfies at once: files for the channel pytorch have several."""
    subdir, solver = attempt.question.subdir, attempt.solver
    kept: list[Spec] = []
    changes: list[str] = []
    for spec in attempt.question.specs:
        if solver.has(spec, subdir):
            kept.append(spec)
        elif (spec.version or spec.build) and solver.has(Spec(spec.name), subdir):
            kept.append(Spec(spec.name))
            changes.append(f"relax {spec}")
        else:
            changes.append(f"leave out {spec.name}")
    if len(changes) > 1 and kept and (found := _tried(solver, replace(attempt.question, specs=tuple(kept)))):
        yield Fix(" and ".join(changes), unlocks=_named(found))


def _drivers(attempt: Attempt) -> Iterator[Fix]:
    """The oldest driver that lets a build through and drops none of the GPUs."""
    have = [m.driver.version for m in attempt.machines if m.gpus and m.driver and m.driver.version]
    facts = attempt.facts
    for driver in _upgrades(have, facts):
        cards = [gpu for machine in attempt.machines for gpu in machine.gpus or ()]
        if any(can_exist(gpu, driver, facts.architectures, facts.drivers).ok is False for gpu in cards):
            continue
        machines = tuple(structs.replace(machine, driver=driver) for machine in attempt.machines)
        solver = attempt.solver.for_machines(CondaJudge(machines, facts, attempt.catalogue.conda))
        if found := _tried(solver, replace(attempt.question, virtual=virtual_packages(machines, facts))):
            branch = (driver.version or "").partition(".")[0]
            yield Fix(f"install driver {driver.version} or newer (branch R{branch})", unlocks=_named(found))
            return


def _upgrades(have: Sequence[str], facts: Facts) -> Iterator[Driver]:
    """Drivers newer than all those of the machines, oldest first; the same that a plan of wheels proposes."""
    newest = max(map(DriverVersion.parse, have), default=None)
    for driver in known_drivers(facts):
        if newest is not None and driver.version and DriverVersion.parse(driver.version) > newest:
            yield driver


def _tried(solver: Solver, question: Question) -> Solution | None:
    try:
        return solver.solve(question)
    except UnsolvableError:
        return None


def _named(solution: Solution) -> str:
    torch = solution.judged.get("pytorch")
    if torch is None:
        return "a set of packages that fits"
    return f"pytorch {torch.candidate.version} [{torch.build.variant}]"


# What a user should know about a conda plan that is otherwise good.

_HOSTS = ("https://conda.anaconda.org/", "http://conda.anaconda.org/", "https://anaconda.org/")
_PROVE = "after the installation, verify it on the machine: envsolve verify --prefix DIR"


def about_channels(channels: Sequence[str], catalogue: Catalogue) -> Iterator[PlanWarning]:
    """Channels that ended, that have terms, or that do not mix with others of the list."""
    named = {channel: record for channel in channels if (record := conda_channel(channel, catalogue.conda_channels))}
    for channel, record in named.items():
        yield PlanWarning("channel", f"the channel {channel} {record.says}", record.remedy)
        others = [other for other in channels if channel_name(other) in record.clashes]
        if others:
            text = f"the channels {channel} and {' and '.join(others)} do not go together: {record.clash}"
            yield PlanWarning("channels-mixed", text, record.remedy)


def channel_name(channel: str) -> str:
    """A channel's name by its URL: ``https://conda.anaconda.org/pytorch`` is ``pytorch``."""
    address = channel.rstrip("/")
    host = next((host for host in _HOSTS if address.startswith(host)), "")
    return address.removeprefix(host)


def about_virtual(virtual: Sequence[VirtualPackage]) -> Iterator[PlanWarning]:
    """Assumptions of the solve that the machines' descriptions leave open."""
    for package in virtual:
        if package.assumed and package.name == "__cuda":
            text = f"{package.assumed}; the plan assumes a driver for CUDA {package.version}"
            yield PlanWarning("cuda-assumed", text, "give it: --driver VERSION (nvidia-smi shows the version)")


def about_conda_builds(solution: Solution) -> Iterator[PlanWarning]:
    """Builds that are not known to run, or whose Triton does not, and packages that stay on the CPU."""
    for judged in solution.judged.values():
        if judged.candidate.name == "libtorch" and "pytorch" in solution.judged:
            continue
        name = f"{judged.candidate.name} {judged.candidate.version} ({judged.candidate.build})"
        if not judged.described and judged.build.cuda is not None:
            text = (
                f"the catalogue does not know which GPU code {name} contains, so it is not known whether the package "
                "runs here"
            )
            yield PlanWarning("not-judged", text, f"run `envsolve index update` and plan again; or {_PROVE}")
        for reason in judged.verdict.reasons:
            if reason.rule.startswith("triton") and reason.ok is False:
                text = f"{reason.text}; torch itself runs, but torch.compile and Triton kernels do not"
                yield PlanWarning("triton-limited", text, None)
    for name in solution.on_cpu:
        text = f"{name} has CUDA builds, but none of them fits the other packages, so the plan has its CPU build"
        yield PlanWarning("cpu-companion", text, f"request another version of {name}")
    unjudged = sorted(solution.variants - solution.judged.keys())
    if unjudged:
        text = (
            f"the catalogue does not know which GPU code {', '.join(unjudged)} contains, so envsolve could not check it"
        )
        yield PlanWarning("not-judged", text, _PROVE)


def conda_channel(channel: str, records: Sequence[CondaChannel]) -> CondaChannel | None:
    """The catalogue's record of a channel, or None."""
    name, address = channel_name(channel), channel.rstrip("/")
    return next((r for r in records if fnmatchcase(name, r.name) or address in r.addresses), None)
