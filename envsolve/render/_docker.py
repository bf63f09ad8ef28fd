"""Instructions of Dockerfiles: what a whole file and a snippet are written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envsolve.render._container import COMPAT, INSTALL_WHEELS, apt_install, variables
from envsolve.render._recipe import PREFIX, Compiling, Recipe

CACHE = "--mount=type=cache,target=/root/.cache"
NETRC = "--mount=type=secret,id=netrc,target=/root/.netrc"
"""Whoever builds may give it; a build without it has none, and no layer keeps it."""


def pip_mounts(made: Recipe) -> tuple[str, ...]:
    """What pip is given while it installs."""
    return (CACHE, NETRC) if made.logins else (CACHE,)


def run(commands: Iterable[str], *mounts: str) -> Iterator[str]:
    """A RUN that stops at the first command that fails."""
    chain = " \\\n    && ".join(commands)
    yield f"RUN {' '.join(mounts)} \\\n    {chain}" if mounts else f"RUN {chain}"


def apt(packages: tuple[str, ...]) -> Iterator[str]:
    """Debian packages in a layer of their own; their versions are those of the base image's release."""
    yield "# hadolint ignore=DL3008"
    yield from run(apt_install(packages))


def file(name: str, lines: Iterable[str]) -> Iterator[str]:
    """A file beside the environment, out of the Dockerfile itself."""
    yield f'COPY <<"EOF" {PREFIX}/{name}'
    yield from lines
    yield from ("EOF", "")


def wheels(made: Recipe) -> Iterator[str]:
    """The wheels installed, and what building the rest takes: other sources keep the layer of wheels."""
    yield from file("wheels.txt", made.wheels.splitlines())
    yield from run([INSTALL_WHEELS], *pip_mounts(made))
    if made.compiling:
        yield from _told(made.compiling)
    yield from _locks(made)


def _told(compiling: Compiling) -> Iterator[str]:
    """What whoever builds may change about what is compiled."""
    if compiling.arch_list:
        yield "# The GPUs that are meant, which the host that builds need not have."
        yield f'ARG TORCH_CUDA_ARCH_LIST="{compiling.arch_list}"'
    yield "# Compilers that run at the same time; unset, what processors and memory allow."
    yield "ARG MAX_JOBS"


def sources(commands: Iterable[str], made: Recipe, *mounts: str) -> Iterator[str]:
    """The RUN that builds from sources."""
    if made.compiling and any("$" in value for value in made.compiling.variables.values()):
        yield "# The linker's own word stands there, which no shell expands."
        yield "# hadolint ignore=SC2016"
    yield from run(commands, *pip_mounts(made), *mounts)


def _locks(made: Recipe) -> Iterator[str]:
    """The locks of what is built from sources."""
    if made.sources:
        yield from file("sources.txt", made.sources.splitlines())
    if made.compiled:
        yield from file("compiled.txt", made.compiled.splitlines())


def constraints(made: Recipe) -> Iterator[str]:
    """The builds that later layers must keep."""
    yield "# What is installed on top of this cannot replace the builds that were judged for the GPU."
    yield from file("constraints.txt", made.constraints)


def libcuda(folder: str, source: str) -> Iterator[str]:
    """The libcuda of a compat package, from an image or a stage."""
    yield "# A libcuda that is newer than the host's driver; it serves data-centre GPUs alone."
    yield f"COPY --from={source} {folder} {COMPAT}"


def environment(made: Recipe) -> str:
    """What is set where the environment runs."""
    settings = [f'{name}="{value}"' for name, value in variables(made).items()]
    return "ENV " + " \\\n    ".join([f'PATH="{":".join(made.path)}:${{PATH}}"', *settings])
