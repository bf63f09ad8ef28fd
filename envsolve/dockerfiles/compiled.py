"""What of a pip command compiles CUDA code, as far as its words and the catalogue tell. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.utils import canonicalize_name

from envsolve.catalogue.model import SourceProject
from envsolve.dockerfiles.installs import Install

ARCH_LIST = "TORCH_CUDA_ARCH_LIST"


def compiled(install: Install, projects: Sequence[SourceProject]) -> Iterator[tuple[str, str]]:
    """Names of what is compiled, each with the variable that it takes the GPUs from."""
    variables = {project.package: project.arch_variable for project in projects if "nvcc" in project.tools}
    for requirement in install.requirements:
        variable = variables.get(canonicalize_name(requirement.name))
        if variable:
            yield requirement.name, variable
    for source in install.sources:
        name = canonicalize_name(source.partition("#")[0].rstrip("/").rsplit("/", 1)[-1].partition("@")[0])
        variable = variables.get(name.removesuffix("-git"))
        if variable or not install.isolated:
            yield source, variable or ARCH_LIST
