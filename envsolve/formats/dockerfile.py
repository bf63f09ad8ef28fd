"""A whole Dockerfile: a stage that builds, one that checks, and an image of the environment.

The locks are inside, so that it takes no build context but for what ``ENVSOLVE`` may name. Building takes no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.facts.catalogue import Catalogue
from envsolve.formats import _container as docker
from envsolve.formats._container import CREATE, CUDA_HOME, VERIFY, check, heading, install_envsolve, install_sources
from envsolve.formats._recipe import PREFIX, Recipe, recipe
from envsolve.planning.plan import Plan

NAME = "dockerfile"
FILENAMES = ("Dockerfile", "Dockerfile*", "Containerfile*", "*.dockerfile", "*.containerfile")
FAMILY = "container"
HOLDS_SEVERAL = False
NEEDS_HASHES = True
BUILDERS = ("docker", "podman")


_CONTEXT = "--mount=type=bind,target=/context"


def render(plan: Plan) -> str:
    """The file's text.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some package has no address or hash.
        UsageError: No image that is known serves.
    """
    made = recipe(plan, Catalogue())
    stages = (_heading(made), _images(made), _base(made), _build(made), _check(made), _final(made))
    return "# syntax=docker/dockerfile:1\n" + "\n".join("".join(f"{line}\n" for line in stage) for stage in stages)


def _heading(made: Recipe) -> Iterator[str]:
    yield from heading(made)
    yield "#"
    yield f"# Build, which takes no GPU:   docker build --platform {made.platform} -t NAME - < FILE"
    yield f"# Run:                         docker run --rm{' --gpus all' if made.uses_gpus else ''} NAME python PROGRAM"
    if made.uses_gpus and install_envsolve(made):
        yield "# Prove it on the GPU:         docker build --target check --build-arg ENVSOLVE=WHERE -t CHECK -f FILE ."
        yield "#                              docker run --rm --gpus all CHECK"
        yield "#                              (WHERE: what pip installs envsolve from, or a wheel beside this file)"
    yield f"# Hold the base still:         --build-arg BASE={made.base}@sha256:DIGEST"
    if made.logins:
        yield f"# Log in to {', '.join(made.logins)}: --secret id=netrc,src=$HOME/.netrc"


def _images(made: Recipe) -> Iterator[str]:
    yield f"ARG BASE={made.base}"
    others = {"CUDA": made.compiling.toolkit if made.compiling else None, "COMPAT": made.compat}
    for name, copied in others.items():
        if copied:
            yield f"ARG {name}={copied.image}"
    for name, copied in others.items():
        if copied:
            yield from ("", f"FROM ${{{name}}} AS {name.lower()}")


def _base(made: Recipe) -> Iterator[str]:
    """What the environment needs where it runs, and so where it is built and checked."""
    yield "FROM ${BASE} AS base"
    if made.runtime_apt:
        yield "# What compiles kernels where it runs, Triton among it, needs a host compiler there."
        yield from docker.apt(made.runtime_apt)


def _build(made: Recipe) -> Iterator[str]:
    """What changes least comes first: a new plan leaves the compilers in the cache."""
    yield "FROM base AS build"
    if made.build_apt:
        yield from docker.apt(made.build_apt)
    if made.compiling:
        yield f"COPY --from=cuda {made.compiling.toolkit.folder} {CUDA_HOME}"
        yield f"ENV CUDA_HOME={CUDA_HOME}"
    yield f"RUN {CREATE}"
    yield from docker.wheels(made)
    if made.builds:
        yield from docker.sources(install_sources(made), made)
    yield from docker.constraints(made)


def _check(made: Recipe) -> Iterator[str]:
    """The environment proved as far as that goes without a GPU; run as an image, the stage proves the rest."""
    yield "FROM build AS check"
    yield from _settings(made)
    proof = install_envsolve(made)
    if not proof:
        yield from docker.run(check(made))
        return
    yield "# Given one, the kernels are compiled for the GPU." if made.gpus else "# Given one, it is put beside it."
    yield "ARG ENVSOLVE"
    yield "WORKDIR /context"
    chain = " \\\n        && ".join(proof)
    guarded = f'if [ -n "${{ENVSOLVE}}" ]; then \\\n        {chain}; \\\n    fi'
    yield from docker.run([*check(made), guarded], docker.CACHE, _CONTEXT)
    words = ", ".join(f'"{word}"' for word in VERIFY)
    yield f"ENTRYPOINT [{words}]"


def _final(made: Recipe) -> Iterator[str]:
    yield "FROM base"
    yield "# From the stage that checks, so that an environment that fails there becomes no image."
    yield f"COPY --from=check {PREFIX} {PREFIX}"
    yield from _settings(made)


def _settings(made: Recipe) -> Iterator[str]:
    """What stands beside the environment where it runs."""
    if made.compat:
        yield from docker.libcuda(made.compat.folder, "compat")
    yield docker.environment(made)
