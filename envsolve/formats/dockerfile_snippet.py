"""The environment of a plan as instructions for a stage of somebody's own Dockerfile.

Its first lines say what the stage must provide: envsolve does not choose the base.
"""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.facts.catalogue import Catalogue
from envsolve.formats._recipe import PREFIX, Recipe, recipe
from envsolve.formats.dockerfile import (
    check,
    constraints,
    environment,
    heading,
    install_sources,
    libcuda,
    run,
    sources,
    wheels,
)
from envsolve.planning.lock import assumptions_of
from envsolve.planning.plan import Plan

NAME = "dockerfile-snippet"
FILENAMES: tuple[str, ...] = ()
FAMILY = "wheels"
HOLDS_SEVERAL = False
NEEDS_HASHES = True


# Not where an image of CUDA has its own, which is a link.
_TOOLKIT = "/opt/toolkit"


def render(plan: Plan) -> str:
    """The instructions.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some package has no URL or hash.
        UsageError: It is for Windows or a Jetson, or compiles with a CUDA version that no image has.
    """
    made = recipe(plan, Catalogue())
    return "".join(f"{line}\n" for part in (_heading(plan, made), _instructions(made)) for line in part)


def _heading(plan: Plan, made: Recipe) -> Iterator[str]:
    yield from heading(made, "The wheels contain CUDA: the stage needs no CUDA image.")
    yield f"# The stage must have python{made.python} with its venv, on {_libc(plan)}."
    apt = dict.fromkeys((*made.runtime_apt, *made.build_apt))
    if apt:
        within = plan.toolchain.host_compilers if made.compiling and plan.toolchain else None
        compiler = f"a host compiler{f' ({within})' if within else ''}; " if [*apt] != ["git"] else ""
        yield f"# ... and {compiler}Debian's packages: {' '.join(apt)}"
    if made.logins:
        yield f"# Log in to {', '.join(made.logins)}: docker build --secret id=netrc,src=$HOME/.netrc"
    yield "# BuildKit builds it; the first line of the file: # syntax=docker/dockerfile:1"


def _libc(plan: Plan) -> str:
    """The libc that every file accepts, in words."""
    libc = assumptions_of(plan).libc
    return f"{libc} or newer" if libc else "a libc that its wheels accept"


def _instructions(made: Recipe) -> Iterator[str]:
    yield f"RUN python{made.python} -m venv {PREFIX}"
    yield from wheels(made)
    if made.builds:
        yield from _sources(made)
    yield from constraints(made)
    yield from run(check(made))
    if made.compat:
        yield from libcuda(made.compat.folder, made.compat.image)
    yield environment(made)


def _sources(made: Recipe) -> Iterator[str]:
    """Compiled packages, with a toolkit that exists for this one instruction, and in no layer."""
    if made.compiling is None:
        yield from sources(install_sources(made), made)
        return
    toolkit = made.compiling.toolkit
    mount = f"--mount=type=bind,from={toolkit.image},source={toolkit.folder},target={_TOOLKIT}"
    commands = (f"export CUDA_HOME={_TOOLKIT}", *install_sources(made))
    yield from sources(commands, made, mount)
