"""What of an install compiles CUDA code, as far as its words, the catalogue and the build context tell."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.catalogue.model import SourceProject
from envsolve.dockerfiles.asked import Asked, pinned
from envsolve.dockerfiles.installs import Install
from envsolve.dockerfiles.offers import Within, found

ARCH_LIST = "TORCH_CUDA_ARCH_LIST"


@dataclass(frozen=True, slots=True)
class Compiled:
    """Something that is compiled against torch.

    Attributes:
        variable: What it takes the GPUs from; None where it has a list of its own, or takes none.
        defaults: Whether it compiles for a list of its own where that is not set.
        told: Variables that its build must be told where no GPU is in sight.
        sure: Whether it has CUDA code; else it only may.
    """

    name: str
    variable: str | None
    defaults: bool
    told: tuple[tuple[str, str], ...] = ()
    sure: bool = True


def compiled(install: Install, asked: Asked) -> Iterator[Compiled]:
    """What an install compiles; nothing of which a ready wheel may be taken."""
    for wanted in install.wanted:
        project = _project(wanted.name, pinned(wanted.requirement.specifier), asked)
        places = asked.looks(install, wanted.name)
        if project is None or wanted.requirement.url or places.unknown:
            continue
        if not found(asked.offers(wanted.name), wanted.requirement.specifier, places, Within(), early=True):
            yield _of(project, wanted.name)
    for source in install.sources:
        name = canonicalize_name(source.partition("#")[0].rstrip("/").rsplit("/", 1)[-1].partition("@")[0])
        project = _project(name.removesuffix("-git"), None, asked)
        if project is not None:
            yield _of(project, source)
        elif not install.isolated and "://" not in source:
            setup = asked.context.text(posixpath.join(source.partition("[")[0], "setup.py"), install.command)
            if setup is None or "CUDAExtension" in setup:
                yield Compiled(source, ARCH_LIST, defaults=False, sure=setup is not None)


def _of(project: SourceProject, name: str) -> Compiled:
    told = tuple((key, value) for key, value in project.variables.items() if key.startswith("FORCE_"))
    return Compiled(name, project.arch_variable, bool(project.archs), told)


def _project(name: str, version: str | None, asked: Asked) -> SourceProject | None:
    """What is known of a package that has nvcc compile it as it is installed."""
    known = [
        project
        for project in asked.catalogue.source_projects
        if project.package == name and (version is None or SpecifierSet(project.versions).contains(version, True))
    ]
    project = known[-1] if known else None
    return project if project and project.compiles != "use" and "nvcc" in project.tools else None
