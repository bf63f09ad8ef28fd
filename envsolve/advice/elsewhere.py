"""Torch from elsewhere: conda-forge, which has code for other GPUs than the package index, or compiled from source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from envsolve.advice.torch import conda_replacements
from envsolve.errors import IndexUnavailableError
from envsolve.facts.builds import SourceProject
from envsolve.facts.catalogue import Catalogue
from envsolve.rules.judge import Judge
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import best_code, libraries_serve
from envsolve.rules.nvidia.toolchain import CompilerFacts, arch_list, gcc_for
from envsolve.solve.candidate_selector import CandidateSelector
from envsolve.solve.family import Family, Option
from envsolve.solve.limits import Limits, best_of
from envsolve.solve.outcome import Fix
from envsolve.values import ComputeCapability, CudaVersion


def conda_forge(family: Family, limits: Limits) -> Iterator[Fix]:
    """The best torch of conda-forge that is asked for and runs on all machines; nothing if more than torch is asked."""
    if [*limits.asked] != ["torch"] or not any(machine.gpus for machine in family.machines):
        return
    for option in conda_replacements(family.machines, family.python, family.catalogue, family.exclude_newer):
        build = option.build
        wanted = limits.asked["torch"].contains(build.version, prereleases=True)
        if wanted and limits.flavour in (None, build.variant) and option.verdict.level.usable:
            yield Fix(
                "take it from conda-forge (--manager conda)", unlocks=f"pytorch {build.version} [{build.variant}]"
            )
            return


# Cards that came after every published torch: what to look for instead.


_MEASURE = "envsolve index measure URL reads which GPUs its wheel has code for"


def newer_builds(family: Family, limits: Limits) -> Iterator[Fix]:
    """A pre-release for each such card, with the first CUDA that knows it; they are in no catalogue, and not judged."""
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
            text = f"no CUDA up to {toolkits[-1].version} knows {cc.sm}: look for newer facts (envsolve index update)"
            yield Fix(f"{text}, or for a pre-release of torch; {_MEASURE}")
        elif CudaVersion.parse(first.version) > newest:
            built = f"built with CUDA {first.version} or newer, the first that knows {cc.sm}"
            yield Fix(f"look for a pre-release of torch {built}; {_MEASURE}")


def _unserved(family: Family) -> Iterator[ComputeCapability]:
    """The compute capabilities that no torch serves, whatever the driver, the Python and the request."""
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


# Torch compiled from source, for cards that no published build has code for (rule 10).


# What a build of one's own is as bound by as a published one.
_BINDING = ("driver-floor", "life")


def source_build(family: Family, limits: Limits) -> Iterator[Fix]:
    """The newest torch that can be asked to compile for every card, with a CUDA that it is published for.

    That CUDA's nvcc and libraries know the cards, and the drivers run it. Whether the sources do compile for them is
    known only to those who tried. Nothing where more than torch is asked.
    """
    specifier = limits.asked["torch"] if [*limits.asked] == ["torch"] else None
    cards = sorted({gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc})
    if specifier is None or not cards:
        return
    compilers = CompilerFacts.of(family.catalogue)
    for option in family.judged("torch"):
        if not option.matches(specifier) or limits.flavour not in (None, option.build.variant):
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
    """Whether, with code for the cards in it, a build would run on the machines."""
    facts: Facts = family.facts
    cuda = option.build.cuda or ""
    served = all(libraries_serve(cuda, cc, facts.toolkits, facts.architectures).ok for cc in cards)
    if not served:
        return False
    judges = (Judge(machine, facts) for machine in family.machines)
    verdicts = [v for judge in judges for v in judge.verdicts(option.build, None)]
    return all(reason.ok for verdict in verdicts for reason in verdict.reasons if reason.rule in _BINDING)


# Extensions compiled from their sources, where no published build serves the machine (rule 10).


_SOURCES = re.compile(
    r"(?P<repository>https://github\.com/[^/]+/[^/]+)/blob/(?P<revision>[^/]+)/(?:(?P<folder>.+)/)?[^/]+"
)


def compiled_instead(family: Family, limits: Limits, selector: CandidateSelector) -> Iterator[Fix]:
    """The request by which each package that has no build for the machines is compiled, where it is known how.

    It names the sources by address, since of a package whose builds are judged the plain name stands for those.
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
                f"compile it: ask for '{name} @ {address}'", unlocks=f"{unlocked} with {torch.label if torch else ''}"
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
    """The newest source distribution for which there is a recipe: its address, its version, the recipe."""
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
    """The best torch that it is compiled against, with code for the cards that the project compiles for."""
    cards = [gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc]
    if project.min_cc is not None and any(cc < ComputeCapability.parse(project.min_cc) for cc in cards):
        return None
    others = {other: specifier for other, specifier in limits.asked.items() if other != name}
    torch = others.get("torch", SpecifierSet()) & SpecifierSet(project.torch or "")
    best = best_of(family, Limits({**others, "torch": torch}, limits.flavour))
    return best[0] if best and best[0].build.cuda else None
