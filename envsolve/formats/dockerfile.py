"""A whole Dockerfile: a stage that builds, one that checks, and an image of the environment.

The locks are inside, so that it takes no build context but for what ``ENVSOLVE`` may name. Building takes no GPU.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from envsolve.facts.catalogue import Catalogue
from envsolve.formats._recipe import PREFIX, Compiling, Recipe, recipe
from envsolve.formats.pip import export_jobs
from envsolve.planning.plan import Plan
from envsolve.values import DriverVersion

NAME = "dockerfile"
FILENAMES = ("Dockerfile", "Dockerfile*", "Containerfile*", "*.dockerfile", "*.containerfile")
FAMILY = "container"
HOLDS_SEVERAL = False
NEEDS_HASHES = True
BUILDERS = ("docker", "podman")

# The shell commands by which containers of every kind are built and checked.


CUDA_HOME = "/usr/local/cuda"
"""Where the toolkit is while sources are compiled."""
COMPAT = "/usr/local/cuda/compat"
"""Where a libcuda that is newer than the driver is; the NVIDIA container runtime looks there, too."""
PYTHON = f"{PREFIX}/bin/python"
CREATE = f"python -m venv {PREFIX}"
INSTALL_WHEELS = f"{PYTHON} -m pip install --no-deps --require-hashes -r {PREFIX}/wheels.txt"
VERIFY = ("/opt/envsolve/bin/envsolve", "verify", "--prefix", PREFIX)

# As in pyproject.toml.
_ENVSOLVE_PYTHON = (3, 10)


def heading(made: Recipe, note: str = "The wheels bring CUDA.") -> Iterator[str]:
    """The purpose of the image and its requirements on the host, as comments.

    Args:
        note: What follows for whoever builds from CUDA being in the wheels.
    """
    yield from (f"# {line}" for line in made.heading)
    if made.compat:
        yield f"# {note} The host's driver may be older than {made.driver}: the libcuda inside replaces"
        yield "# its own, on data-centre GPUs only."
    elif made.driver:
        yield f"# {note} The host brings its driver: {made.driver} or newer."


def apt_install(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Debian packages, without leaving the lists of all others."""
    words = " ".join(packages)
    return ("apt-get update", f"apt-get install -y --no-install-recommends {words}", "rm -rf /var/lib/apt/lists/*")


def install_sources(made: Recipe) -> tuple[str, ...]:
    """The builds, in order: their requirements, source distributions, repositories."""
    isolation = ""
    commands = []
    if made.sources:
        commands.append(f"{PYTHON} -m pip install --no-deps --require-hashes -r {PREFIX}/sources.txt")
    commands += [f"{PYTHON} -m pip install --no-deps {shlex.quote(tree)}" for tree in made.trees]
    if made.compiling:
        # No wheel out of the cache, which knows one by its source alone: not by the GPUs or the torch it was built for.
        isolation = " --no-build-isolation --no-cache-dir"
        commands.append('export PATH="${CUDA_HOME}/bin:${PATH}"')
        commands += [f"export {name}={shlex.quote(value)}" for name, value in made.compiling.variables.items()]
        if made.compiling.build_requires:
            commands.append(f"{PYTHON} -m pip install {shlex.join(made.compiling.build_requires)}")
        commands.append(export_jobs("python"))
    if made.compiled:
        commands.append(f"{PYTHON} -m pip install --no-deps --require-hashes{isolation} -r {PREFIX}/compiled.txt")
    commands += [f"{PYTHON} -m pip install --no-deps{isolation} {shlex.quote(tree)}" for tree in made.compiled_trees]
    return tuple(commands)


def check(made: Recipe) -> tuple[str, ...]:
    """Commands that check without a GPU and without envsolve."""
    has_torch = any(line.startswith("torch=") for line in made.constraints)
    return (f"{PYTHON} -m pip check", *([f"{PYTHON} -c 'import torch'"] if has_torch else []))


def install_envsolve(made: Recipe) -> tuple[str, ...]:
    """envsolve in an environment of its own, and the kernels compiled; nothing on a Python that it does not run on."""
    if DriverVersion.parse(made.python) < _ENVSOLVE_PYTHON:
        return ()
    served = [gpu for gpu in made.gpus if gpu not in made.without_triton]
    others = [gpu for gpu in made.gpus if gpu in made.without_triton]
    return (
        "python -m venv /opt/envsolve",
        '/opt/envsolve/bin/python -m pip install "${ENVSOLVE}"',
        *([_compile_for(served)] if served else []),
        # Its kernels are known not to compile for these: the plan warned of that, and torch runs.
        *([_compile_for(others, "--only", "arch-coverage", "--only", "nvrtc")] if others else []),
    )


def _compile_for(gpus: Sequence[str], *options: str) -> str:
    return shlex.join([*VERIFY, "--compile-only", *(word for gpu in gpus for word in ("--gpu", gpu)), *options])


def variables(made: Recipe) -> Mapping[str, str]:
    """Variables to set at run time; ``PATH`` is left to each kind of container.

    Source of those that the NVIDIA container runtime reads: NVIDIA Container Toolkit documentation, "Specialized
    Configurations with Docker".
    """
    constraints = f"{PREFIX}/constraints.txt"
    found = {"PIP_CONSTRAINT": constraints, "UV_CONSTRAINT": constraints}
    if made.uses_gpus:
        found |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    if made.compat:
        found["LD_LIBRARY_PATH"] = COMPAT
    elif made.driver:
        found["NVIDIA_REQUIRE_CUDA"] = _condition(made.driver, made.driver_cuda)
    return found | dict(sorted(made.environment.items()))


def _condition(driver: str, cuda: str | None) -> str:
    """Requirements on the host, in a form that both programs of the NVIDIA container runtime read.

    libnvidia-container compares versions number by number. The toolkit's own check, used if devices are injected
    through CDI, accepts only semantic versions, so that a leading zero (``580.65.06``) is an error; and it reads the
    driver's version from the name of ``libcuda.so``, which on WSL has none. A blank means "or".
    Source: libnvidia-container, src/cli/dsl.c; nvidia-container-toolkit, internal/requirements.
    """
    asked = f"driver>={'.'.join(map(str, DriverVersion.parse(driver)))}"
    return f"{asked} cuda>={cuda}" if cuda else asked


# Instructions of Dockerfiles: what a whole file and a snippet are written with.


CACHE = "--mount=type=cache,target=/root/.cache"
NETRC = "--mount=type=secret,id=netrc,target=/root/.netrc"
"""Whoever builds may give it; a build without it has none, and no layer keeps it."""


def pip_mounts(made: Recipe) -> tuple[str, ...]:
    """Files and settings that pip gets while it installs."""
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
    """The build arguments for compiled packages."""
    if compiling.arch_list:
        yield "# The target GPUs. The host that builds the image does not need them."
        yield f'ARG TORCH_CUDA_ARCH_LIST="{compiling.arch_list}"'
    yield "# Number of parallel compilers; if unset, as many as the processors and the memory allow."
    yield "ARG MAX_JOBS"


def sources(commands: Iterable[str], made: Recipe, *mounts: str) -> Iterator[str]:
    """The RUN that builds from sources."""
    if made.compiling and any("$" in value for value in made.compiling.variables.values()):
        yield "# It contains a variable of the linker, which no shell expands."
        yield "# hadolint ignore=SC2016"
    yield from run(commands, *pip_mounts(made), *mounts)


def _locks(made: Recipe) -> Iterator[str]:
    """The locks of what is built from sources."""
    if made.sources:
        yield from file("sources.txt", made.sources.splitlines())
    if made.compiled:
        yield from file("compiled.txt", made.compiled.splitlines())


def constraints(made: Recipe) -> Iterator[str]:
    """The constraints that keep these builds in later layers."""
    yield "# Later installs in this image cannot replace the builds that were chosen for the GPU."
    yield from file("constraints.txt", made.constraints)


def libcuda(folder: str, source: str) -> Iterator[str]:
    """The libcuda of a compat package, from an image or a stage."""
    yield "# A libcuda that is newer than the host's driver; it supports data-centre GPUs only."
    yield f"COPY --from={source} {folder} {COMPAT}"


def environment(made: Recipe) -> str:
    """Variables to set at run time."""
    settings = [f'{name}="{value}"' for name, value in variables(made).items()]
    return "ENV " + " \\\n    ".join([f'PATH="{":".join(made.path)}:${{PATH}}"', *settings])


_CONTEXT = "--mount=type=bind,target=/context"


def render(plan: Plan) -> str:
    """The file's text.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some package has no URL or hash.
        UsageError: No known image is suitable.
    """
    made = recipe(plan, Catalogue())
    stages = (_heading(made), _images(made), _base(made), _build(made), _check(made), _final(made))
    return "# syntax=docker/dockerfile:1\n" + "\n".join("".join(f"{line}\n" for line in stage) for stage in stages)


def _heading(made: Recipe) -> Iterator[str]:
    yield from heading(made)
    yield "#"
    yield f"# Build it (needs no GPU):   docker build --platform {made.platform} -t NAME - < FILE"
    yield f"# Run:                         docker run --rm{' --gpus all' if made.uses_gpus else ''} NAME python PROGRAM"
    if made.uses_gpus and install_envsolve(made):
        yield "# Check it on a GPU:         docker build --target check --build-arg ENVSOLVE=WHERE -t CHECK -f FILE ."
        yield "#                              docker run --rm --gpus all CHECK"
        yield "#                              (WHERE: what pip installs envsolve from, or a wheel beside this file)"
    yield f"# Pin the base image:          --build-arg BASE={made.base}@sha256:DIGEST"
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
    """Everything that the environment needs at run time, and so also while it is built and checked."""
    yield "FROM ${BASE} AS base"
    if made.runtime_apt:
        yield "# Triton and others compile kernels at run time, and need a host compiler for that."
        yield from apt(made.runtime_apt)


def _build(made: Recipe) -> Iterator[str]:
    """Instructions that change least come first: a new plan leaves the compilers in the cache."""
    yield "FROM base AS build"
    if made.build_apt:
        yield from apt(made.build_apt)
    if made.compiling:
        yield f"COPY --from=cuda {made.compiling.toolkit.folder} {CUDA_HOME}"
        yield f"ENV CUDA_HOME={CUDA_HOME}"
    yield f"RUN {CREATE}"
    yield from wheels(made)
    if made.builds:
        yield from sources(install_sources(made), made)
    yield from constraints(made)


def _check(made: Recipe) -> Iterator[str]:
    """The stage that checks the environment without a GPU; running it as an image checks the rest."""
    yield "FROM build AS check"
    yield from _settings(made)
    proof = install_envsolve(made)
    if not proof:
        yield from run(check(made))
        return
    yield "# Given one, the kernels are compiled for the GPU." if made.gpus else "# Given one, it is put beside it."
    yield "ARG ENVSOLVE"
    yield "WORKDIR /context"
    chain = " \\\n        && ".join(proof)
    guarded = f'if [ -n "${{ENVSOLVE}}" ]; then \\\n        {chain}; \\\n    fi'
    yield from run([*check(made), guarded], CACHE, _CONTEXT)
    words = ", ".join(f'"{word}"' for word in VERIFY)
    yield f"ENTRYPOINT [{words}]"


def _final(made: Recipe) -> Iterator[str]:
    yield "FROM base"
    yield "# Copied from the stage that checks, so that no image is made if a check fails."
    yield f"COPY --from=check {PREFIX} {PREFIX}"
    yield from _settings(made)


def _settings(made: Recipe) -> Iterator[str]:
    """The parts of the final image beside the environment."""
    if made.compat:
        yield from libcuda(made.compat.folder, "compat")
    yield environment(made)
