"""A whole Dockerfile: a stage that builds, one that checks, and an image of the environment without compilers.

The locks are inside, so that it takes no build context but for what ``ENVSOLVE`` may name. Building takes no GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envsolve.catalogue.load import Catalogue
from envsolve.plan import Plan
from envsolve.render._container import (
    COMPAT,
    CREATE,
    CUDA_HOME,
    INSTALL_WHEELS,
    VERIFY,
    apt_install,
    check,
    install_envsolve,
    install_sources,
    variables,
)
from envsolve.render._recipe import PREFIX, Compiling, Recipe, recipe

_CACHE = "--mount=type=cache,target=/root/.cache"
_CONTEXT = "--mount=type=bind,target=/context"


def render(plan: Plan) -> str:
    """The file's text.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some package has no address or hash.
        UsageError: No image that is known serves.
    """
    made = recipe(plan, Catalogue())
    stages = (_heading(made), _images(made), _build(made), _check(made), _final(made))
    return "# syntax=docker/dockerfile:1\n" + "\n".join("".join(f"{line}\n" for line in stage) for stage in stages)


def _heading(made: Recipe) -> Iterator[str]:
    yield from (f"# {line}" for line in made.heading)
    if made.driver:
        yield f"# The wheels bring CUDA. The host brings its driver: {made.driver} or newer."
    yield "#"
    yield f"# Build, which takes no GPU:   docker build --platform {made.platform} -t NAME ."
    yield f"# Run:                         docker run --rm{' --gpus all' if made.uses_gpus else ''} NAME python PROGRAM"
    if made.uses_gpus and install_envsolve(made):
        yield "# Prove it on the GPU:         docker build --target check --build-arg ENVSOLVE=WHERE -t NAME-check ."
        yield "#                              docker run --rm --gpus all NAME-check"
        yield "#                              (WHERE: what pip installs envsolve from, or a wheel beside this file)"
    yield f"# Hold the base still:         --build-arg BASE={made.base}@sha256:DIGEST"


def _images(made: Recipe) -> Iterator[str]:
    yield f"ARG BASE={made.base}"
    others = {"CUDA": made.compiling.toolkit if made.compiling else None, "COMPAT": made.compat}
    for name, copied in others.items():
        if copied:
            yield f"ARG {name}={copied.image}"
    for name, copied in others.items():
        if copied:
            yield from ("", f"FROM ${{{name}}} AS {name.lower()}")


def _build(made: Recipe) -> Iterator[str]:
    yield "FROM ${BASE} AS build"
    yield f"RUN {CREATE}"
    yield from _file("wheels.txt", made.wheels.splitlines())
    yield from _run([INSTALL_WHEELS], _CACHE)
    if made.compiling:
        yield from _compilers(made.compiling)
    if made.sources:
        yield from _file("sources.txt", made.sources.splitlines())
    if made.compiled:
        yield from _file("compiled.txt", made.compiled.splitlines())
    if made.sources or made.compiled or made.trees:
        yield from _run(install_sources(made), _CACHE)
    yield "# What is installed on top of this cannot replace the builds that were judged for the GPU."
    yield from _file("constraints.txt", made.constraints)


def _compilers(compiling: Compiling) -> Iterator[str]:
    """The toolkit and the compilers, which stay in this stage."""
    yield "# hadolint ignore=DL3008"
    yield from _run(apt_install(compiling.apt))
    yield f"COPY --from=cuda {compiling.toolkit.folder} {CUDA_HOME}"
    yield f"ENV CUDA_HOME={CUDA_HOME}"
    if compiling.arch_list:
        yield "# The GPUs that are meant, which the host that builds need not have."
        yield f'ARG TORCH_CUDA_ARCH_LIST="{compiling.arch_list}"'
    yield "# Compilers that run at the same time; unset, what processors and memory allow."
    yield "ARG MAX_JOBS"


def _check(made: Recipe) -> Iterator[str]:
    """The environment proved as far as that goes without a GPU; run as an image, the stage proves the rest."""
    yield "FROM build AS check"
    proof = install_envsolve(made)
    if not proof:
        yield from _run(check(made))
        return
    yield "# Given one, the kernels are compiled for the GPU."
    yield "ARG ENVSOLVE"
    yield "WORKDIR /context"
    chain = " \\\n        && ".join(proof)
    guarded = f'if [ -n "${{ENVSOLVE}}" ]; then \\\n        {chain}; \\\n    fi'
    yield from _run([*check(made), guarded], _CACHE, _CONTEXT)
    words = ", ".join(f'"{word}"' for word in VERIFY)
    yield f"ENTRYPOINT [{words}]"


def _final(made: Recipe) -> Iterator[str]:
    yield "FROM ${BASE}"
    yield "# From the stage that checks, so that an environment that fails there becomes no image."
    yield f"COPY --from=check {PREFIX} {PREFIX}"
    if made.compat:
        yield "# A libcuda that is newer than the host's driver; it serves data-centre GPUs alone."
        yield f"COPY --from=compat {made.compat.folder} {COMPAT}"
    settings = [f'{name}="{value}"' for name, value in variables(made).items()]
    yield "ENV " + " \\\n    ".join([f'PATH="{":".join(made.path)}:${{PATH}}"', *settings])
    if made.runtime_apt:
        yield "# What compiles CUDA code where it runs needs a host compiler there."
        yield "# hadolint ignore=DL3008"
        yield from _run(apt_install(made.runtime_apt))


def _file(name: str, lines: Iterable[str]) -> Iterator[str]:
    yield f'COPY <<"EOF" {PREFIX}/{name}'
    yield from lines
    yield from ("EOF", "")


def _run(commands: Iterable[str], *mounts: str) -> Iterator[str]:
    chain = " \\\n    && ".join(commands)
    yield f"RUN {' '.join(mounts)} \\\n    {chain}" if mounts else f"RUN {chain}"
