"""Builds to use instead: the nearest published ones, builds from conda-forge, and builds from source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from envsolve.advice.torch import conda_replacements
from envsolve.errors import IndexUnavailableError
from envsolve.facts.builds import SourceProject
from envsolve.facts.catalogue import Catalogue, nearest_variants
from envsolve.rules.judge import judge_of
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import best_code, libraries_serve
from envsolve.rules.nvidia.toolchain import CompilerFacts, arch_list, gcc_for
from envsolve.solve.candidate_selector import CandidateSelector
from envsolve.solve.family import Family, Option
from envsolve.solve.limits import Limits, best_of
from envsolve.solve.outcome import Conflict, ConflictFact, Fix
from envsolve.values import ComputeCapability, CudaVersion


class _Pin(msgspec.Struct, frozen=True):
    """A requirement of one version: ``==2.0.0+cu121``."""

    version: Version
    variant: str | None


def explain_unpublished(name: str, family: Family, limits: Limits) -> Conflict:
    """Why no build in the catalogue satisfies a requirement on any machine, and the nearest builds."""
    specifier = limits.asked[name]
    options = family.judged(name)
    versions = sorted({Version(option.version.public) for option in options})
    asked = ConflictFact(f"{name}{specifier} was requested")
    before = f" uploaded before {family.exclude_newer.partition('T')[0]}" if family.exclude_newer else ""
    if not versions:
        fact = ConflictFact(f"the catalogue has no build of {name}{before}")
        return Conflict((asked, fact), tuple(_later(family, limits)))
    if len(specifier) > 1 and all(any(o.matches(SpecifierSet(str(one))) for o in options) for one in specifier):
        words = " and ".join(sorted(map(str, specifier)))
        fact = ConflictFact(f"no known release of {name}{before} satisfies {words} at the same time")
        return Conflict((asked, fact), (*_later(family, limits), *_one_dropped(name, family, limits)))
    pin = _pin(specifier)
    same = [option for option in options if pin and option.version.public == pin.version.public]
    if pin and same:
        text = published_as(name, pin.version.public, same) + _of_variant(name, pin.variant, family)
        fact = ConflictFact(text, family.catalogue.source_title(same[0].build.source))
    else:
        near = ", ".join(map(str, _around(pin.version, versions))) if pin else ""
        known = f"the catalogue has {name} {versions[0]} to {versions[-1]}{before}"
        text = f"{known}, and none of these versions satisfies {specifier}"
        fact = ConflictFact(f"{text}; the nearest versions: {near}" if near else text)
    found = (*for_a_gpu(family, limits), *_later(family, limits), *_remedies(name, pin, versions, family, limits))
    return Conflict((asked, fact), tuple(dict.fromkeys(found)))


def explain_unpublished_variant(variant: str, family: Family, limits: Limits) -> Conflict:
    """Why a variant that torch was never published for is not possible; the nearest that has one, and any that has."""
    near = nearest_variants(variant, family.catalogue)
    text = f"torch was never published for {variant}"
    facts = (
        ConflictFact(f"the CUDA variant {variant} was requested"),
        ConflictFact(f"{text}; the nearest variants are {' and '.join(near)}" if near else text),
    )
    found: dict[Fix, None] = {}
    for other in (*reversed(near), None):
        best = best_of(family, replace(limits, variant=other))
        if best is not None:
            action = f"use --cuda {other}" if other else f"relax --cuda {variant}"
            found[Fix(action, unlocks=", ".join(option.label for option in best))] = None
    return Conflict(facts, (*for_a_gpu(family, limits), *found))


def published_as(name: str, version: str, options: list[Option]) -> str:
    """The variants that a version was published in: ``torch 2.0.0 was published only as cpu, cu117, cu118``."""
    variants = sorted({option.build.variant for option in options}, key=lambda variant: (len(variant), variant))
    return f"{name} {version} was published only as {', '.join(variants)}"


def _of_variant(name: str, variant: str | None, family: Family) -> str:
    """The versions that a variant has: ``; for cu121 there are 2.1.0 to 2.5.1``."""
    options = [option for option in family.judged(name) if option.build.variant == variant]
    versions = sorted({Version(option.version.public) for option in options})
    if not versions:
        return ""
    span = f"versions {versions[0]} to {versions[-1]} exist" if len(versions) > 1 else f"version {versions[0]} exists"
    return f"; for {variant} {span}"


def _later(family: Family, limits: Limits) -> Iterator[Fix]:
    """The answer if later upload dates are allowed."""
    if family.exclude_newer and (best := best_of(replace(family, exclude_newer=None), limits)):
        yield Fix("leave out --exclude-newer", unlocks=", ".join(option.label for option in best))


def _one_dropped(name: str, family: Family, limits: Limits) -> Iterator[Fix]:
    """The change that leaves out one of several contradicting requirements on a package."""
    every = sorted(map(str, limits.asked[name]))
    for one in every:
        rest = SpecifierSet(",".join(other for other in every if other != one))
        best = best_of(family, replace(limits, asked={**limits.asked, name: rest}))
        if best is not None:
            yield Fix(f"leave out {name}{one}", unlocks=", ".join(option.label for option in best))


def for_a_gpu(family: Family, limits: Limits) -> Iterator[Fix]:
    """The advice to plan a CUDA variant for the machine that will run it, if the plan was for one without a GPU."""
    pins = (_pin(specifier) for specifier in limits.asked.values())
    named = [limits.variant, *(pin.variant for pin in pins if pin)]
    if family.wants_cpu and any(variant not in (None, "cpu") for variant in named):
        yield Fix("plan for the machine with the GPU: --target 'GPU, driver VERSION'")


def _pin(specifier: SpecifierSet) -> _Pin | None:
    pins = [one.version for one in specifier if one.operator in ("==", "===") and not one.version.endswith(".*")]
    try:
        version = Version(pins[0]) if len(pins) == 1 else None
    except InvalidVersion:
        return None
    return _Pin(version, version.local) if version else None


def _around(version: Version, versions: list[Version]) -> list[Version]:
    """The nearest of the versions below and above one."""
    public = Version(version.public)
    return [*[v for v in versions if v < public][-1:], *[v for v in versions if v > public][:1]]


def _remedies(name: str, pin: _Pin | None, versions: list[Version], family: Family, limits: Limits) -> Iterator[Fix]:
    """The same version in another variant, the nearest versions in the same variant or in any, any version at all."""
    if pin:
        public = Version(pin.version.public)
        yield from first_that_fits(name, [f"=={public}"], family, limits)
        newer, older = [v for v in versions if v > public], [v for v in reversed(versions) if v < public]
        for variant in dict.fromkeys((f"+{pin.variant}" if pin.variant else "", "")):
            ways = ([f"=={version}{variant}" for version in side] for side in (newer, older))
            found = [remedy for side in ways for remedy in first_that_fits(name, side, family, limits)]
            yield from found
            if found:
                break
    best = best_of(family, replace(limits, asked={**limits.asked, name: SpecifierSet()}))
    if best is not None:
        yield Fix(f"relax {name}{limits.asked[name]}", unlocks=", ".join(option.label for option in best))


def first_that_fits(name: str, specifiers: Sequence[str], family: Family, limits: Limits) -> Iterator[Fix]:
    """The change that requests the first of several alternatives that can be solved."""
    for specifier in specifiers:
        best = best_of(family, replace(limits, asked={**limits.asked, name: SpecifierSet(specifier)}))
        if best is not None:
            build = next(option.build for option in best if option.build.package == name)
            same = {o.build.variant for o in family.judged(name) if o.build.version == build.version}
            pin = f"{name}=={build.version}" + (f"+{build.variant}" if len(same) > 1 else "")
            yield Fix(f"request {pin}", unlocks=", ".join(option.label for option in best))
            return


# The same project published under several names, one for each CUDA: ``cupy-cuda11x`` beside ``cupy-cuda12x``.


_CUDA = re.compile(r"(?<=-)(cuda|cu)\d+x?(?=-|$)")


def other_cuda(family: Family, limits: Limits) -> Iterator[Fix]:
    """The change that requests the package's sibling for the newest other CUDA that can be solved."""
    for name in limits.asked:
        # faiss-gpu, without a CUDA in its name, is a sibling of faiss-gpu-cu12.
        stem = _CUDA.sub("", name).rstrip("-")
        if stem == name:
            continue
        found = []
        for sibling in family.catalogue.family:
            if sibling != name and _CUDA.sub("", sibling).rstrip("-") == stem and family.options(sibling):
                rest = {other: specifier for other, specifier in limits.asked.items() if other != name}
                best = best_of(family, replace(limits, asked={**rest, sibling: SpecifierSet()}))
                option = next((o for o in best or () if o.build.package == sibling), None)
                if option is not None and option.verdict.level.usable:
                    found.append(option)
        if found:
            newest = max(found, key=lambda option: option.version)
            yield Fix(
                f"request {newest.build.package} instead of {name}",
                unlocks=newest.label,
                replaces=(name, newest.build.package),
            )


# Torch from elsewhere: conda-forge, which has code for other GPUs than the package index, or compiled from source.


def conda_forge(family: Family, limits: Limits) -> Iterator[Fix]:
    """The best requested torch of conda-forge that runs on all machines; empty if more than torch is requested."""
    if [*limits.asked] != ["torch"] or not any(machine.gpus for machine in family.machines):
        return
    for option in conda_replacements(family.machines, family.python, family.catalogue, family.exclude_newer):
        build = option.build
        wanted = limits.asked["torch"].contains(build.version, prereleases=True)
        if wanted and limits.variant in (None, build.variant) and option.verdict.level.usable:
            yield Fix(
                "use the conda-forge build (--manager conda)", unlocks=f"pytorch {build.version} [{build.variant}]"
            )
            return


# Cards that came after every published torch: what to look for instead.


_MEASURE = "`envsolve index measure URL` reads from a wheel for which GPUs it has code"


def newer_builds(family: Family, limits: Limits) -> Iterator[Fix]:
    """A pre-release for each such GPU, with the first CUDA that knows it; not in the catalogue, and not judged."""
    family = replace(family, exclude_newer=None)
    newest = max(
        (CudaVersion.parse(option.build.cuda) for option in family.judged("torch") if option.build.cuda), default=None
    )
    if newest is None or not family.needs_torch(limits.asked):
        return
    toolkits = family.facts.toolkits
    for cc in _unserved(family):
        knows = (t for t in toolkits if best_code(t.archs, cc, family.facts.architectures)[0].usable)
        first = next(knows, None)
        if first is None:
            text = (
                f"no CUDA version up to {toolkits[-1].version} supports {cc.sm}: update the facts (envsolve index "
                "update)"
            )
            yield Fix(f"{text}, or try a pre-release of torch; {_MEASURE}")
        elif CudaVersion.parse(first.version) > newest:
            built = f"built with CUDA {first.version} or newer, the first version that supports {cc.sm}"
            yield Fix(f"try a pre-release of torch {built}; {_MEASURE}")


def _unserved(family: Family) -> Iterator[ComputeCapability]:
    """The compute capabilities that no torch supports, whatever the driver, the Python and the request."""
    told: set[ComputeCapability] = set()
    for machine in family.machines:
        for gpu in machine.gpus or ():
            if gpu.cc is not None and gpu.cc not in told:
                told.add(gpu.cc)
                alone = replace(machine, gpus=(gpu,), driver=None)
                if (
                    best_of(replace(family, machines=(alone,), python=None), Limits({"torch": SpecifierSet()}, None))
                    is None
                ):
                    yield gpu.cc


# Torch compiled from source, for GPUs that no published build has code for (rule 10).


# What a build of one's own is as bound by as a published one.
_BINDING = ("driver-floor", "life")


def source_build(family: Family, limits: Limits) -> Iterator[Fix]:
    """The newest torch that can be compiled for every GPU, with a CUDA that it is published for.

    That CUDA's nvcc and libraries know the GPUs, and the drivers run it. Whether the sources do compile for them is
    known only to those who tried. Empty if the request has more than torch.
    """
    specifier = limits.asked["torch"] if [*limits.asked] == ["torch"] else None
    cards = sorted({gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc})
    if specifier is None or not cards:
        return
    compilers = CompilerFacts.of(family.catalogue)
    for option in family.judged("torch"):
        if not option.matches(specifier) or limits.variant not in (None, option.build.variant):
            continue
        archs, listed = arch_list(option.build, cards, compilers)
        if listed.ok and _sourcebuild_runs(option, cards, family):
            gcc = gcc_for(option.build, compilers).preferred
            tools = f"nvcc {option.build.cuda}" + (f", gcc {gcc}" if gcc else "")
            action = f"compile torch {option.build.version} from source: {tools}, TORCH_CUDA_ARCH_LIST={archs}"
            yield Fix(
                action, unlocks=f"code for {' '.join(cc.sm for cc in cards)}, if the sources still compile for it"
            )
            return


def _sourcebuild_runs(option: Option, cards: Sequence[ComputeCapability], family: Family) -> bool:
    """Whether a build would run on the machines if it had code for their GPUs."""
    facts: Facts = family.facts
    cuda = option.build.cuda or ""
    served = all(libraries_serve(cuda, cc, facts.toolkits, facts.architectures).ok for cc in cards)
    if not served:
        return False
    judges = (judge_of(machine, facts) for machine in family.machines)
    verdicts = [v for judge in judges for v in judge.verdicts(option.build, None)]
    return all(reason.ok for verdict in verdicts for reason in verdict.reasons if reason.rule in _BINDING)


# Extensions compiled from their sources, where no published build serves the machine (rule 10).


_SOURCES = re.compile(
    r"(?P<repository>https://github\.com/[^/]+/[^/]+)/blob/(?P<revision>[^/]+)/(?:(?P<folder>.+)/)?[^/]+"
)


def compiled_instead(family: Family, limits: Limits, selector: CandidateSelector) -> Iterator[Fix]:
    """The request by which each package that has no build for the machines is compiled, if the catalogue knows how.

    It names the sources by URL, because for a package whose builds are judged the plain name means those.
    """
    for name, specifier in limits.asked.items():
        own = [project for project in family.catalogue.source_projects if project.package == name]
        if not own or family.options(name) or not _compiles_here(family):
            continue
        against = {project.versions: _torch_for(name, project, family, limits) for project in own}
        fitting = [project for project in own if against[project.versions]]
        # Of a version that was asked for there may be none, and of its kin some.
        found = next(filter(None, (_published(name, s, fitting, selector) for s in (specifier, SpecifierSet()))), None)
        if found is None and own[-1] in fitting and (repository := repository_of(name, family.catalogue)):
            found = repository, "", own[-1]
        if found is not None:
            address, version, project = found
            unlocked, torch = " ".join(filter(None, (name, version))), against[project.versions]
            yield Fix(
                f"compile it from source: request '{name} @ {address}'",
                unlocks=f"{unlocked} with {torch.label if torch else ''}",
            )


def repository_of(name: str, catalogue: Catalogue) -> str | None:
    """Where the sources of an extension are, by the file that says what compiling it takes; None for others."""
    own = [project for project in catalogue.source_projects if project.package == name]
    source = catalogue.source(own[-1].source) if own else None
    match = _SOURCES.fullmatch(source.url) if source is not None and source.url else None
    if match is None:
        return None
    folder = f"#subdirectory={match['folder']}" if match["folder"] else ""
    return f"git+{match['repository']}@{match['revision']}{folder}"


def _compiles_here(family: Family) -> bool:
    """Whether the machines are of systems whose compilers the plan knows."""
    return all((machine.platform is None or machine.platform.os in (None, "linux")) for machine in family.machines)


def _published(
    name: str, specifier: SpecifierSet, projects: Sequence[SourceProject], selector: CandidateSelector
) -> tuple[str, str, SourceProject] | None:
    """The newest source distribution for which there is a recipe: its URL, its version, the recipe."""
    try:
        for version, file in selector.sources(name, specifier):
            for project in projects:
                if SpecifierSet(project.versions).contains(version, prereleases=True):
                    digest = file.hashes.get("sha256")
                    return file.url + (f"#sha256={digest}" if digest else ""), str(version), project
    except IndexUnavailableError:
        return None
    return None


def _torch_for(name: str, project: SourceProject, family: Family, limits: Limits) -> Option | None:
    """The best torch that it is compiled against, with code for the GPUs that the project compiles for."""
    cards = [gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc]
    if project.min_cc is not None and any(cc < ComputeCapability.parse(project.min_cc) for cc in cards):
        return None
    others = {other: specifier for other, specifier in limits.asked.items() if other != name}
    torch = others.get("torch", SpecifierSet()) & SpecifierSet(project.torch or "")
    best = best_of(family, Limits({**others, "torch": torch}, limits.variant))
    return best[0] if best and best[0].build.cuda else None
