"""Which packages of a plan compile CUDA code, and when."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import SourceProject
from envsolve.plan import Caution, PlannedPackage
from envsolve.resolve.direct import UNREAD


@dataclass(frozen=True, slots=True)
class Compiled:
    """A package that compiles CUDA code.

    Attributes:
        project: What that takes; None where it is not recorded.
        when: While it is installed, when it is used, or at both times.
        tree: Whether it is a repository or a folder, which has no hash.
    """

    name: str
    project: SourceProject | None
    when: Literal["install", "use", "both"] = "install"
    tree: bool = False

    @property
    def needs_torch(self) -> bool:
        """Whether it is known to be compiled against torch."""
        return self.project is not None and any(Requirement(r).name == "torch" for r in self.project.build_requires)


def compiled_packages(packages: Sequence[PlannedPackage], catalogue: Catalogue) -> tuple[Compiled, ...]:
    """The packages whose CUDA code is compiled as they are installed.

    Those are sdists of known projects, and what is asked for by address: source trees, and archives that need torch.
    """
    found = []
    for package in packages:
        unread = package.version == str(UNREAD)
        if package.kind != "sdist" and not unread:
            continue
        project = _project(package, catalogue.source_projects)
        if project is not None and project.compiles != "use":
            found.append(Compiled(package.name, project, project.compiles, unread))
        elif unread or (package.index is None and "torch" in package.requires):
            found.append(Compiled(package.name, project, tree=unread))
    return tuple(found)


def compiled_when_used(
    packages: Sequence[PlannedPackage], asked: Collection[str], catalogue: Catalogue
) -> tuple[Compiled, ...]:
    """The packages that were asked for by name and compile CUDA code at their first use.

    What others bring along is left out: most of it works without (vllm's flashinfer has its kernels in wheels).
    """
    found = []
    for package in packages:
        project = _project(package, catalogue.source_projects) if package.name in asked else None
        if project is not None and project.compiles == "use" and "nvcc" in project.tools:
            found.append(Compiled(package.name, project, "use"))
    return tuple(found)


def about_other_sources(packages: Sequence[PlannedPackage], compiled: Sequence[Compiled]) -> Iterator[Caution]:
    """Sources for which no toolchain could be named."""
    named = {one.name for one in compiled}
    for package in packages:
        if package.kind == "sdist" and package.name not in named:
            text = f"{package.name} {package.version} is built from source"
            yield Caution("source-build", text, "a compiler must be there, and for CUDA code an nvcc")


def _project(package: PlannedPackage, projects: Sequence[SourceProject]) -> SourceProject | None:
    """What is recorded of a project, for its version where that is known, else for its newest."""
    own = [project for project in projects if project.package == package.name]
    if package.version == str(UNREAD):
        return own[-1] if own else None
    return next((p for p in own if SpecifierSet(p.versions).contains(Version(package.version), prereleases=True)), None)
