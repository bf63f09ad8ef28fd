"""From the solver's choice to packages pinned to one file each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.facts.builds import ANY, Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.facts.files import WHEEL_STUBS
from envsolve.machine.model import Gpu, Machine
from envsolve.packages.client import IndexClient
from envsolve.packages.links import hashed
from envsolve.packages.model import IndexFile
from envsolve.packages.requirements import Need
from envsolve.packages.settings import MERGED
from envsolve.planning.plan import DriverNeed, Support
from envsolve.rules.judge import fast_paths_of, judge_of
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON
from envsolve.rules.nvidia.driver import driver_runs, lifted
from envsolve.rules.platform import Environment
from envsolve.rules.verdict import FastPath, Level, Verdict
from envsolve.solve.candidate_selector import Ready, taken, torches_served
from envsolve.solve.family import Family, Option
from envsolve.solve.files import DirectReferences, FamilyFiles
from envsolve.solve.needs import Candidate
from envsolve.solve.outcome import PlannedPackage, PlanWarning
from envsolve.solve.pins import pins_of
from envsolve.solve.provider import Provider
from envsolve.solve.resolver import Chosen, Solution
from envsolve.toolchain.model import Compiled
from envsolve.values import DriverVersion


class Pinned(msgspec.Struct, frozen=True):
    """The packages, and the failures of indexes that the catalogue replaced."""

    packages: tuple[PlannedPackage, ...]
    unreached: tuple[IndexUnavailableError, ...]


def digests_of(needs: Sequence[Need], environment: Environment) -> dict[str, frozenset[str]]:
    """The files that needs name by hash, by package."""
    found: dict[str, frozenset[str]] = {}
    for need in needs:
        if need.hashes and environment.wants(need.requirement.marker):
            name = canonicalize_name(need.requirement.name)
            found[name] = found.get(name, frozenset()) | {*need.hashes}
    return found


def pin(
    solution: Solution,
    files: FamilyFiles,
    direct: DirectReferences,
    digests: Mapping[str, frozenset[str]],
    provider: Provider,
) -> Pinned:
    """Find the file of every chosen package.

    Args:
        solution: The packages.
        files: The files of the torch family.
        direct: What is requested by URL; of a repository, the commit that was read.
        digests: Per package, the only files that may be taken; the ordinary packages were chosen by them already.
        provider: Of the metadata of sdists, and of packages that stand in for required ones.

    Raises:
        BuildGoneError: An index no longer lists a file that the catalogue knows.
        UsageError: A torch-family file is not among those that were listed by hash.
    """
    packages: list[PlannedPackage] = []
    failures: dict[str, IndexUnavailableError] = {}
    for chosen in solution.chosen.values():
        option, url = chosen.candidate.option, chosen.candidate.url
        if option is None:
            tree = direct.tree(chosen.candidate.name, url) if url else None
            file = chosen.candidate.file
            package = _package(chosen, hashed(file) if file else direct.file(url) if url else None)
            package = replace(package, wheels_from=_wheels_from(chosen.candidate, provider))
            packages.append(replace(package, url=tree.address or url, tree=tree) if tree else package)
            continue
        # The index is asked only now, for one file: during the search every candidate would have cost a request.
        file, failure = files.known(option.build)
        if not taken(file, digests.get(chosen.candidate.name)):
            hint = (
                "remove the --hash lines of that package from the requirements file, or plan on the machine that the "
                "file is for"
            )
            raise UsageError(f"the hash of {file.filename} is none of those in the requirements file", hint=hint)
        package = _package(chosen, hashed(file))
        # A listed file is no longer inferred, whatever the catalogue knew.
        listed = failure is None and option.build.evidence is Evidence.INFERRED
        packages.append(replace(package, evidence=Evidence.PUBLISHED.value) if listed else package)
        if failure is not None:
            failures.setdefault(failure.message, failure)
    # One message per index and not per file: an unreachable host fails for torch and all its companions alike.
    return Pinned(tuple(_standing_in(package, provider.stand_ins) for package in packages), tuple(failures.values()))


def _wheels_from(candidate: Candidate, provider: Provider) -> str | None:
    """The index that the build of an sdist downloads a wheel from; None if it compiles, or is no sdist."""
    if candidate.file is None or candidate.file.filename.endswith(".whl"):
        return None
    metadata = provider.metadata(candidate)
    stubs = provider.family.catalogue.records(WHEEL_STUBS) if metadata.backend else ()
    return next((metadata.wheels or one.index for one in stubs if one.backend == metadata.backend), None)


def _standing_in(package: PlannedPackage, stand_ins: Mapping[str, str]) -> PlannedPackage:
    owners = tuple(o for o, own in stand_ins.items() if own == package.name and any(who_needs(o, package.why)))
    return replace(package, stands_in_for=owners) if owners else package


def who_needs(name: str, why: Iterable[str]) -> Iterator[str]:
    """Of ``insightface 2.1 needs onnxruntime>=1.17``, what says who needs it: ``insightface 2.1``."""
    for line in why:
        # The reasons are texts because the JSON of a plan has them as texts.
        asked = line.removeprefix("asked: ")
        who, needs, what = ("the request", asked, asked) if asked != line else line.partition(" needs ")
        if needs and canonicalize_name(re.split(r"[^\w.-]", what, maxsplit=1)[0]) == name:
            yield who


def _package(chosen: Chosen, file: IndexFile | None) -> PlannedPackage:
    candidate, build = chosen.candidate, chosen.candidate.option.build if chosen.candidate.option else None
    kind: Literal["wheel", "sdist"] = "wheel" if file and file.filename.endswith(".whl") else "sdist"
    return PlannedPackage(
        name=candidate.name,
        version=str(candidate.version),
        variant=build.variant if build and build.variant != ANY else None,
        index=(file.index or None) if file else None,
        filename=file.filename if file else None,
        url=candidate.url or (file.url or None if file else None),
        hashes=dict(file.hashes) if file else {},
        kind=kind,
        requires=chosen.requires,
        why=chosen.why,
        size=file.size if file else None,
        requires_python=file.requires_python if file else None,
        evidence=build.evidence.value if build else None,
        libc=build.libc if build else None,
    )


# What the plan's builds can do on its GPUs, and the driver that they need.


_RANK = {None: 0, "forward-compat": 1, "minor-version": 2, "full": 3}


class Judged(msgspec.Struct, frozen=True):
    """One chosen build on one GPU of one machine; the GPU is empty if the machine has none, or its GPUs are unknown."""

    build: Build
    machine: Machine
    gpu: Gpu
    verdict: Verdict


def judged_builds(solution: Solution, family: Family, python: str) -> tuple[Judged, ...]:
    """Every family build of a solution, on every GPU of every machine; without those that only the CPU runs."""
    # A build without CUDA code has one verdict, however many GPUs the machine has: hence the lenient zip.
    machines, members = family.machines, family.catalogue.family
    judges = [(machine, judge_of(machine, family.facts)) for machine in machines]
    return tuple(
        Judged(build, machine, gpu, verdict)
        for option in _options(solution)
        if option.verdict.level is not Level.NONE or not members[option.build.package].optional
        for build, (machine, judge) in zip(option.builds, judges, strict=True)
        for gpu, verdict in zip(machine.gpus or (Gpu(),), judge.verdicts(build, python), strict=False)
    )


def support_of(judged: Sequence[Judged]) -> tuple[Support, ...]:
    """The levels of packages whose GPU code is known, equal lines once; Triton's line: its kernels."""
    lines: dict[Support, None] = {}
    for one in judged:
        build, gpu, verdict = one.build, one.gpu, one.verdict
        if build.package != TRITON and (not build.code or build.variant == ANY):
            continue
        evidence = build.known("code").evidence.value
        name, cc = gpu.name or ("GPU" if gpu.compute_capability else "unknown GPU"), gpu.compute_capability
        lines[Support(build.package, name, cc, verdict.level.value, verdict.code, evidence)] = None
    return tuple(lines)


def fast_paths(judged: Sequence[Judged], facts: Facts, catalogue: Catalogue) -> tuple[FastPath, ...]:
    """Those of every build on every GPU that runs it, equal ones once."""
    running = (one for one in judged if one.verdict.level.usable)
    paths = (path for one in running for path in fast_paths_of(one.build, one.gpu, facts, catalogue))
    return tuple(dict.fromkeys(paths))


def driver_need(judged: Sequence[Judged]) -> DriverNeed | None:
    """The newest of the drivers that the builds ask for, and the least favourable mode among machines."""
    needs = []
    for one in judged:
        if one.build.cuda is not None and one.build.variant != ANY:
            have = one.machine.driver.version if one.machine.driver else None
            needs.append(DriverNeed(one.verdict.driver_required, one.verdict.driver_mode, have))
    # The newest driver that any build needs, and of those the mode that promises least.
    return max(needs, key=lambda n: (DriverVersion.parse(n.required or "0"), -_RANK[n.mode]), default=None)


def driver_of_code(cuda: str, machines: Sequence[Machine], facts: Facts) -> DriverNeed | None:
    """The driver requirement of code compiled with the nvcc of a CUDA version, in the least favourable mode."""
    needs = []
    for machine in machines:
        os = machine.platform.os if machine.platform else None
        fit = driver_runs(cuda, lifted(machine, facts.forward), os, facts.toolkits, facts.floors)
        needs.append(DriverNeed(fit.required, fit.mode, machine.driver.version if machine.driver else None))
    return max(needs, key=lambda need: -_RANK[need.mode], default=None)


def _options(solution: Solution) -> Iterator[Option]:
    for chosen in solution.chosen.values():
        if chosen.candidate.option is not None:
            yield chosen.candidate.option


# Wheels that are on no index, and wheels for another torch.

_LISTED = (Evidence.MEASURED.value, Evidence.PUBLISHED.value)


def off_index(solution: Solution, family: Family) -> frozenset[str]:
    """The packages of a solution whose wheel is on no index."""
    places = family.catalogue.indexes
    return frozenset(
        name
        for name, chosen in solution.chosen.items()
        if (option := chosen.candidate.option) and (place := places.get(option.build.index)) and place.kind != "simple"
    )


def about_off_index(packages: Sequence[PlannedPackage], taken: frozenset[str]) -> Iterator[PlanWarning]:
    """Where such a wheel is, and what is not known of it."""
    for package in packages:
        if package.name not in taken:
            continue
        text = f"{package.name} {package.version} is a wheel outside the package indexes: {package.url}"
        if package.evidence not in _LISTED:
            text += "; the file is known only from the project's build workflow"
        if not package.hashes:
            text += "; its sha256 is not known"
        yield PlanWarning(
            "off-index-wheel",
            text,
            "if the file does not exist, compile the package; the toolchain of this plan is sufficient",
        )


def about_elsewhere(
    compiled: Sequence[Compiled], torch: Option, wheels: Ready, family: Family, needs: Sequence[Need]
) -> Iterator[PlanWarning]:
    """Notes on published wheels of packages that are compiled nevertheless: not found, or for another torch.

    Args:
        compiled: What is compiled.
        torch: The torch of the plan.
        wheels: Those that are compatible with it.
        family: What is published, and the machines.
        needs: What is requested: wheels of releases that it excludes do not count.
    """
    version = f"torch {torch.build.version} [{torch.build.variant}]"
    for one in compiled:
        served = torches_served(one.name, family, pins_of(needs, one.name))
        if wheels.get(one.name):
            text = f"{one.name} has a prebuilt wheel for {version}, but the page that links to it cannot be read"
            yield PlanWarning(
                "ready-wheel-unread",
                f"{text}, or does not list the wheel",
                "plan again on a machine that can reach that page",
            )
        elif served:
            span = served[0] if len(served) == 1 else f"{served[0]} to {served[-1]}"
            free = not pins_of(needs, "torch")
            text = f"{one.name} has prebuilt wheels for torch {span}, but none for {version}"
            remedy = f"request torch=={served[-1]}.* to compile nothing" if free else None
            yield PlanWarning("ready-wheel-elsewhere", text, remedy)


def about_torch_for_wheels(torch: Option, needs: Sequence[Need], family: Family) -> Iterator[PlanWarning]:
    """A note that torch is older because a pinned extension has a published wheel for it."""
    newest = next((o for o in family.options("torch") if o.verdict.level.usable), None)
    for need in needs:
        if need.origin.startswith("the prebuilt wheel of ") and newest:
            text = (
                f"torch {torch.build.version} was chosen for {need.origin}; with a newer torch, the package would "
                "have to be compiled"
            )
            yield PlanWarning(
                "torch-for-ready-wheel",
                text,
                f"request torch=={newest.build.version} to use the newest torch and compile the package",
            )


def about_indexes(failures: Sequence[IndexUnavailableError], date: str | None) -> Iterator[PlanWarning]:
    """Indexes that the catalogue replaced."""
    for failure in failures:
        text = f"{failure.message}; the plan uses the files known to the catalogue of {date} instead"
        yield PlanWarning("index-unreachable", text, failure.hint)


def about_places(
    packages: Sequence[PlannedPackage], client: IndexClient, family: Collection[str]
) -> Iterator[PlanWarning]:
    """Pages of ``--find-links`` that cannot be read, and packages that only a merge of indexes takes.

    The latter are of another index than the default one, which has them as well.
    """
    for failure in client.links.unread.values():
        yield PlanWarning("links-unreachable", f"{failure.message}; the plan has no files from there", failure.hint)
    if client.settings.strategy != MERGED:
        return
    own = client.without_login(client.settings.default)
    for package in packages:
        if package.index not in (None, "", own) and package.name not in family and client.listing(package.name, own):
            text = (
                f"{package.name} {package.version} comes from {package.index}, although the default index also has "
                "this package"
            )
            yield PlanWarning("indexes-merged", text, "to use the default index: --index-strategy first-index")
