"""The exact pip commands, to be run in order with the environment's Python."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import msgspec

from envsolve._default_index import DEFAULT_INDEX
from envsolve.formats._packages import default_index, installable, is_direct, is_tree
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage
from envsolve.toolchain.model import SITE_PACKAGES, Toolchain

NAME = "pip"
FILENAMES: tuple[str, ...] = ()
FAMILY = "wheels"
HOLDS_SEVERAL = False
NEEDS_HASHES = False

# Shell commands that install a plan with pip or uv, and compile its CUDA sources as ``envsolve install`` does.


# Gigabytes that one compiler of CUDA code takes; flash-attention's README warns of as much for each job.
_JOB_GB = 4
_JOBS = (
    "import os; memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'); "
    f"print(max(1, min(os.cpu_count(), memory // {_JOB_GB}000000000)))"
)
# Headers of torch's own CUDA 12 wheels, for a toolkit that has the compiler alone.
_HEADERS = "import glob, sysconfig; print(':'.join(glob.glob(sysconfig.get_path('purelib') + '/nvidia/*/include')))"
_PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"
# NVIDIA's packages have libcudart.so.13 and no libcudart.so, which is what a linker asks for.
_LINKS = (
    'for file in "$CUDA_HOME"/lib/*.so.*; do ln -sf "${file##*/}" "${file%%.so.*}.so"; done; '
    'ln -sfn lib "$CUDA_HOME/lib64"'
)
# Nor a stub of the driver's library, which is linked against where no driver is.
_STUB = (
    'mkdir -p "$CUDA_HOME/lib/stubs"; '
    'grep -ohE "\\bcu[A-Z][A-Za-z0-9_]*" "$CUDA_HOME"/include/cuda*.h | sort -u | sed "s/.*/void &(void) {}/" | '
    '"${CC:-cc}" -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$CUDA_HOME/lib/stubs/libcuda.so" -x c -'
)
_LIBRARY_PATH = 'LIBRARY_PATH="$CUDA_HOME/lib64:$CUDA_HOME/lib64/stubs${LIBRARY_PATH:+:$LIBRARY_PATH}"'


def is_compiled(package: PlannedPackage, plan: Plan) -> bool:
    """Whether it is compiled in the environment, after everything else is installed."""
    return plan.toolchain is not None and package.kind == "sdist" and package.name in plan.toolchain.compiles


def export_jobs(python: str) -> str:
    """Set ``MAX_JOBS`` to what processors and memory allow, unless it is set."""
    return f'export MAX_JOBS="${{MAX_JOBS:-$({python} -c "{_JOBS}")}}"'


def library_path(toolchain: Toolchain) -> str | None:
    """The linker option for the CUDA libraries of the environment; None if it has none."""
    if toolchain.nvcc_from != "pip" or toolchain.CUDA_HOME is None:
        return None
    return f"-Wl,-rpath,$ORIGIN/..{toolchain.CUDA_HOME.removeprefix(SITE_PACKAGES)}/lib"


def prepare(toolchain: Toolchain, python: str) -> Iterator[str]:
    """The commands before the sources, in the same shell.

    Args:
        toolchain: What compiles them.
        python: The environment's Python, in the shell's words.
    """
    if toolchain.nvcc_from == "pip" and toolchain.CUDA_HOME:
        below = toolchain.CUDA_HOME.removeprefix(SITE_PACKAGES)
        yield f'export CUDA_HOME="$({python} -c "{_PACKAGES}"){below}"'
        yield _LINKS
        yield _STUB
    elif toolchain.CUDA_HOME:
        yield f"export CUDA_HOME={shlex.quote(toolchain.CUDA_HOME)}"
    elif toolchain.get_nvcc:
        yield toolchain.get_nvcc
    told = [_LIBRARY_PATH, *(f"{name}={shlex.quote(value)}" for name, value in toolchain.environment.items())]
    if run_path := library_path(toolchain):
        told.append(f"LDFLAGS={shlex.quote(run_path)}")
    else:
        told.append(f'CPATH="$({python} -c "{_HEADERS}")"')
    yield " ".join(['export PATH="$CUDA_HOME/bin:$PATH"', *told])
    yield export_jobs(python)


# Install commands, the same for pip and uv but for their words.
#
# The plan holds every package, so nothing is left to the installer's resolver (``--no-deps``), and each index has its
# own command: no index can supply a package that the plan takes from another.


class Words(msgspec.Struct, frozen=True):
    """An installer's words.

    Attributes:
        install: Those that begin a command: ``("uv", "pip", "install")``.
        index: The option that replaces the default index.
        unisolated: The options that build in the environment itself, and take no wheel that was built before.
        python: The environment's Python, in the shell's words.
    """

    install: Sequence[str]
    index: str
    unisolated: Sequence[str]
    python: str


def install_commands(plan: Plan, words: Words) -> tuple[str, ...]:
    """The commands that install a plan, to be run in order in one POSIX shell.

    Raises:
        ImpossibleError: Nothing fits.
    """
    packages, install = installable(plan), words.install
    compiled = [package for package in packages if is_compiled(package, plan)]
    default = default_index(packages)
    served: dict[str, list[str]] = {}
    for package in (package for package in packages if package not in compiled):
        if not is_direct(package):
            served.setdefault(package.index or default, []).append(f"{package.name}=={package.version}")
    commands: list[list[str]] = []
    # The default index last: what it serves may have to be built, with a torch that is there already.
    for index in sorted(served, key=lambda index: (index == default, index)):
        where = [] if index == DEFAULT_INDEX else [words.index, index]
        commands.append([*install, "--no-deps", *where, *served[index]])
    direct = [package for package in packages if is_direct(package) and package not in compiled]
    if files := [_reference(package) for package in direct if not is_tree(package)]:
        commands.append([*install, "--no-deps", *files])
    commands += [[*install, *trees] for trees in _trees(direct)]
    return (*map(shlex.join, commands), *_compile(plan, compiled, default, words))


def _compile(plan: Plan, compiled: Sequence[PlannedPackage], default: str, words: Words) -> Iterator[str]:
    """Last of all, what is compiled against the rest."""
    if not compiled or plan.toolchain is None:
        return
    yield from prepare(plan.toolchain, words.python)
    where = [] if default == DEFAULT_INDEX else [words.index, default]
    begin = [*words.install, *words.unisolated]
    known = [package for package in compiled if not is_tree(package)]
    if known:
        named = [_reference(p) if is_direct(p) else f"{p.name}=={p.version}" for p in known]
        yield shlex.join([*begin, "--no-deps", *where, *named])
    yield from (shlex.join([*begin, *trees]) for trees in _trees(compiled))


def _trees(packages: Sequence[PlannedPackage]) -> Iterator[list[str]]:
    """Source trees: those whose dependencies are known, and in the plan; then those whose are not."""
    trees = [package for package in packages if is_tree(package)]
    known = [_reference(package) for package in trees if package.tree and package.tree.exact]
    others = [_reference(package) for package in trees if not (package.tree and package.tree.exact)]
    if known:
        yield ["--no-deps", *known]
    if others:
        yield others


def _reference(package: PlannedPackage) -> str:
    return f"{package.name} @ {package.url}"


_WORDS = Words(("python", "-m", "pip", "install"), "--index-url", ("--no-build-isolation", "--no-cache-dir"), "python")


def commands(plan: Plan) -> tuple[str, ...]:
    """One command per index, then what compiling the sources takes.

    Raises:
        ImpossibleError: Nothing fits.
    """
    return install_commands(plan, _WORDS)


def render(plan: Plan) -> str:
    """The commands, one a line."""
    return "".join(f"{command}\n" for command in commands(plan))
