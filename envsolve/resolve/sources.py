"""Extensions compiled from their sources, where no published build serves the machine (rule 10)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.specifiers import SpecifierSet

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import SourceProject
from envsolve.errors import IndexUnavailableError
from envsolve.machine.cc import ComputeCapability
from envsolve.resolve.family import Family, Option
from envsolve.resolve.limits import Limits, best_of
from envsolve.resolve.outcome import Remedy
from envsolve.resolve.pool import Pool

_SOURCES = re.compile(
    r"(?P<repository>https://github\.com/[^/]+/[^/]+)/blob/(?P<revision>[^/]+)/(?:(?P<folder>.+)/)?[^/]+"
)


def compiled_instead(family: Family, limits: Limits, pool: Pool) -> Iterator[Remedy]:
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
        found = next(filter(None, (_published(name, s, fitting, pool) for s in (specifier, SpecifierSet()))), None)
        if found is None and own[-1] in fitting and (repository := repository_of(name, family.catalogue)):
            found = repository, "", own[-1]
        if found is not None:
            address, version, project = found
            unlocked, torch = " ".join(filter(None, (name, version))), against[project.versions]
            yield Remedy(f"compile it: ask for '{name} @ {address}'", f"{unlocked} with {torch.label if torch else ''}")


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
    name: str, specifier: SpecifierSet, projects: Sequence[SourceProject], pool: Pool
) -> tuple[str, str, SourceProject] | None:
    """The newest source distribution for which there is a recipe: its address, its version, the recipe."""
    try:
        for version, file in pool.sources(name, specifier):
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
