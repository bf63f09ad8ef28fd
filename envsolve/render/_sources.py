"""The shell commands by which the CUDA sources of a plan are compiled, the way ``envsolve install`` does it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from envsolve.plan import SITE_PACKAGES, Plan, PlannedPackage, Toolchain

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
    """Whether it is compiled in the environment, after all else is there."""
    return plan.toolchain is not None and package.kind == "sdist" and package.name in plan.toolchain.compiles


def export_jobs(python: str) -> str:
    """Set ``MAX_JOBS`` to what processors and memory allow, unless it is set."""
    return f'export MAX_JOBS="${{MAX_JOBS:-$({python} -c "{_JOBS}")}}"'


def library_path(toolchain: Toolchain) -> str | None:
    """The linker's option by which what is compiled finds the CUDA libraries of the environment; None without such."""
    if toolchain.nvcc_from != "pip" or toolchain.CUDA_HOME is None:
        return None
    return f"-Wl,-rpath,$ORIGIN/..{toolchain.CUDA_HOME.removeprefix(SITE_PACKAGES)}/lib"


def prepare(toolchain: Toolchain, python: str) -> Iterator[str]:
    """What comes before the sources, in the same shell.

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
