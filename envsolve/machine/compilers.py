"""C and C++ compilers that ``nvcc`` and Triton can use as host compilers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from envsolve.files import real_path
from envsolve.machine.model import HostCompiler
from envsolve.machine.search_path import folders, programs
from envsolve.processes import ask

# conda's compilers are called by their full target name.
_NAME = re.compile(r"(?:\w+-conda-linux-gnu-)?(?P<kind>gcc|g\+\+|clang|clang\+\+)(?:-\d+(?:\.\d+)?)?")
_REAL_NAME = re.compile(r"(?:\w+-)*(?:gcc|g\+\+|clang|clang\+\+)(?:-\d+(?:\.\d+)?)?")
_CLANG_VERSION = re.compile(r"clang version (\d+(?:\.\d+)*)")
_GCC_VERSION = re.compile(r"^(\d+(?:\.\d+)*)$", re.MULTILINE)


def find_compilers(environ: Mapping[str, str], root: Path = Path("/")) -> list[Path]:
    """Compilers on ``PATH`` in its order, each real program once under the first name that leads to it.

    ``gcc`` and ``g++`` are two programs and both count: Triton calls the one, nvcc the other.
    """
    found: dict[Path, Path] = {}
    for path in programs(folders(environ, root), _NAME):
        real = real_path(path)
        # A compiler cache stands in for many compilers at once: there the name is the identity.
        found.setdefault(real if _REAL_NAME.fullmatch(real.name) else path, path)
    return list(found.values())


def read_compiler(path: Path, environ: Mapping[str, str]) -> HostCompiler | None:
    """Kind and version of the compiler at ``path``; None where it does not run.

    macOS and some clusters call clang ``gcc``: the answer, not the name, decides on the kind.
    """
    printed = ask([str(path), "--version"], environ)
    if printed is None:
        return None
    if match := _CLANG_VERSION.search(printed):
        return HostCompiler("clang", match[1], str(path))
    match = _GCC_VERSION.search(ask([str(path), "-dumpfullversion", "-dumpversion"], environ) or "")
    return HostCompiler("gcc", match[1] if match else None, str(path))
