"""An Apptainer definition file: the same container as the Dockerfile, for clusters.

The locks are inside. Building takes no GPU; ``--nv`` brings the host's driver in where it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envsolve.facts.catalogue import Catalogue
from envsolve.formats._recipe import PREFIX, Compiling, Copied, Recipe, recipe
from envsolve.formats.dockerfile import (
    COMPAT,
    CREATE,
    CUDA_HOME,
    INSTALL_WHEELS,
    apt_install,
    check,
    heading,
    install_envsolve,
    install_sources,
    variables,
)
from envsolve.planning.plan import Plan

NAME = "apptainer"
FILENAMES = ("container.def", "*.def")
FAMILY = "container"
HOLDS_SEVERAL = False
NEEDS_HASHES = True
BUILDERS = ("apptainer",)


def render(plan: Plan) -> str:
    """The file's text.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some package has no URL or hash.
        UsageError: No known image is suitable.
    """
    made = recipe(plan, Catalogue())
    parts = [_heading(made)]
    if made.compiling:
        parts.append(_stage("cuda", made.compiling.toolkit.image))
    if made.compat:
        parts.append(_stage("compat", made.compat.image))
    parts += [_stage("build", made.base), _build(made), _stage("final", made.base), _final(made)]
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts)


def _heading(made: Recipe) -> Iterator[str]:
    nv = " --nv" if made.uses_gpus else ""
    yield from heading(made)
    yield "#"
    yield "# Build it (needs no GPU):   apptainer build NAME.sif NAME.def"
    yield f"# Run:                         apptainer exec{nv} NAME.sif python PROGRAM"
    yield f"# Check it where it runs:      apptainer test{nv} NAME.sif"
    if made.gpus and install_envsolve(made):
        yield "# Compile kernels, too:        apptainer build --build-arg ENVSOLVE=WHERE NAME.sif NAME.def"
        yield "#                              (WHERE: what pip installs envsolve from)"
    if made.logins:
        yield f"# Log in to {', '.join(made.logins)}: --bind $HOME/.netrc:/root/.netrc"
    yield f"# Pin the base image:          write {made.base}@sha256:DIGEST in both places"


def _stage(name: str, image: str) -> Iterator[str]:
    yield "Bootstrap: docker"
    yield f"From: {image}"
    yield f"Stage: {name}"


def _build(made: Recipe) -> Iterator[str]:
    if made.compiling:
        yield from _copied("cuda", made.compiling.toolkit, CUDA_HOME)
    proof = install_envsolve(made)
    if proof:
        yield from ("%arguments", "    ENVSOLVE=", "")
    yield from ("%post", "    set -e", f"    {CREATE}")
    yield from _file("wheels.txt", made.wheels.splitlines())
    yield f"    {INSTALL_WHEELS}"
    if made.build_apt:
        yield from (f"    {command}" for command in apt_install(made.build_apt))
    if made.compiling:
        yield from _told(made.compiling)
    if made.sources:
        yield from _file("sources.txt", made.sources.splitlines())
    if made.compiled:
        yield from _file("compiled.txt", made.compiled.splitlines())
    if made.builds:
        yield from (f"    {command}" for command in install_sources(made))
    yield "    # Later installs in this image cannot replace the builds that were chosen for the GPU."
    yield from _file("constraints.txt", made.constraints)
    yield from (f"    {command}" for command in check(made))
    if proof:
        yield '    ENVSOLVE="{{ ENVSOLVE }}"'
        yield '    if [ -n "${ENVSOLVE}" ]; then'
        yield from (f'        export {name}="{value}"' for name, value in sorted(made.environment.items()))
        yield from (f"        {command}" for command in proof)
        yield "    fi"


def _told(compiling: Compiling) -> Iterator[str]:
    yield f"    export CUDA_HOME={CUDA_HOME}"
    if compiling.arch_list:
        yield f'    export TORCH_CUDA_ARCH_LIST="{compiling.arch_list}"'


def _final(made: Recipe) -> Iterator[str]:
    yield from ("%files from build", f"    {PREFIX} {PREFIX}", "")
    if made.compat:
        yield from _copied("compat", made.compat, COMPAT)
    if made.runtime_apt:
        yield "%post"
        yield from (f"    {command}" for command in apt_install(made.runtime_apt))
        yield ""
    yield "%environment"
    yield f'    export PATH="{":".join(made.path)}:${{PATH}}"'
    yield from (f'    export {name}="{value}"' for name, value in variables(made).items())
    yield from ("", "%test", "    set -e")
    yield from (f"    {command}" for command in check(made))


def _copied(stage: str, copied: Copied, to: str) -> Iterator[str]:
    yield from (f"%files from {stage}", f"    {copied.folder} {to}", "")


def _file(name: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"    cat > {PREFIX}/{name} <<'EOF'"
    yield from lines
    yield "EOF"
