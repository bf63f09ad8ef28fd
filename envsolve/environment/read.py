"""Reading an environment, every source of it joined into one value, and finding the environments of a machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from envsolve.environment.distributions import leftovers, read_conda, read_distributions, read_extensions, read_torch
from envsolve.environment.layout import is_environment, read_layout
from envsolve.environment.loader import read_directories, read_libraries
from envsolve.environment.model import BuildTools, Environment
from envsolve.machine.model import Toolkit
from envsolve.machine.tools import find_interpreters, folders, nvcc, programs, written_version
from envsolve.system.files import is_file, read_regular, real_path
from envsolve.values import PythonVersion

_NVCC = re.compile(r"nvcc")
_COMPILER = re.compile(r"(?:[\w]+-conda-linux-gnu-)?(?:gcc|cc|clang)")
#: Levels below a given directory that are looked at.
_DEPTH = 4
#: Directories that hold thousands of others and no environment.
_SKIPPED = frozenset({".git", ".hg", ".tox", ".nox", "node_modules", "__pycache__", "site-packages"})
#: What the kernel shows as files.
_KERNEL = frozenset({"/proc", "/sys", "/dev"})
_CONDA_ROOTS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda", "conda")


def read_environment(prefix: Path, environ: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Environment:
    """Read an environment, the code of its extensions included, which may be gigabytes.

    Nothing of the environment is imported or run, and damage in it is part of the answer.

    Args:
        prefix: Its root directory.
        environ: What decides beside its files: PYTHONPATH, LD_LIBRARY_PATH, CUDA_HOME, PATH, HOME.
        root: Directory that stands for ``/`` where the loader's configuration is read.

    Raises:
        UsageError: There is no environment at ``prefix``.
    """
    outline = read_outline(prefix, environ, root=root)
    return replace(outline, extensions=tuple(read_extensions(outline.distributions, outline.libraries)))


def read_outline(prefix: Path, environ: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Environment:
    """Likewise, without the code of extensions: what metadata, headers and torch's own files tell.

    Raises:
        UsageError: There is no environment at ``prefix``.
    """
    layout = read_layout(prefix, environ)
    folders = [Path(site.path) for site in layout.sites]
    distributions = tuple(found for folder in folders for found in read_distributions(folder))
    conda, unreadable = read_conda(layout.prefix)
    torches = (read_torch(folder, layout.prefix) for folder in folders)
    return Environment(
        prefix=str(layout.prefix),
        kind=layout.kind,
        program=layout.program,
        python=layout.python,
        arch=layout.arch,
        base=str(layout.base),
        sites=layout.sites,
        distributions=distributions,
        conda=conda,
        torches=tuple(torch for torch in torches if torch),
        libraries=tuple(read_libraries(distributions, layout.prefix)),
        loader=tuple(read_directories(environ, root)),
        tools=read_tools(layout.prefix, layout.base, layout.python, environ),
        unreadable=(*unreadable, *(text for folder in folders for text in leftovers(folder))),
    )


def read_tools(prefix: Path, base: Path, python: str | None, environ: Mapping[str, str]) -> BuildTools:
    """What compiling would find: toolkits, compilers and ``Python.h``; nothing is run."""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    search = folders(environ)
    on_path = next(programs(search, _NVCC), None)
    own = prefix / "bin"
    compilers = programs([own, *(folder for folder in search if folder != own)], _COMPILER)
    return BuildTools(
        cuda_home=home,
        cuda_home_toolkit=_toolkit(Path(home)) if home else None,
        path_toolkit=_toolkit(real_path(on_path).parent.parent) if on_path else None,
        compilers=tuple(map(str, compilers)),
        python_h=_python_h(prefix, base, python),
    )


def _toolkit(folder: Path) -> Toolkit | None:
    program = nvcc(folder)
    version = written_version(folder)
    if program is None and version is None:
        return None
    return Toolkit(version, str(folder), program is not None)


def _python_h(prefix: Path, base: Path, python: str | None) -> str | None:
    minor = str(PythonVersion.parse(python)) if python else "3"
    places = (f"include/python{minor}/Python.h", f"include/python{minor}t/Python.h", "include/Python.h")
    found = (root / place for root in (base, prefix) for place in places)
    return next((str(path) for path in found if is_file(path)), None)


def find_environments(folders: Sequence[Path], environ: Mapping[str, str]) -> list[Path]:
    """Root directories of environments, each once: the active one, those of each tool, then those in ``folders``.

    Args:
        folders: Where to look besides, some levels deep.
        environ: HOME, and the variables by which tools move their places.
    """
    found: dict[Path, Path] = {}
    for prefix in (*_active(environ), *_of_tools(environ), *(p for f in folders for p in _below(f, _DEPTH))):
        real = real_path(prefix)
        if real not in found and is_environment(real):
            found[real] = prefix
    return list(found.values())


def find_installations(environ: Mapping[str, str]) -> list[Path]:
    """Root directories of the Pythons on PATH that are no environments, where they have, or their user has, a torch."""
    roots: dict[Path, None] = {}
    for program in find_interpreters(environ):
        root = real_path(program).parent.parent
        if not is_environment(root) and not is_environment(program.parent.parent) and _has_torch(root, environ):
            roots[root] = None
    return list(roots)


def _has_torch(root: Path, environ: Mapping[str, str]) -> bool:
    places = [root, root / "local", *([Path(environ["HOME"]) / ".local"] if environ.get("HOME") else [])]
    return any(True for place in places for _ in place.glob("lib/python3*/*-packages/torch/version.py"))


def _active(environ: Mapping[str, str]) -> Iterator[Path]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if value := environ.get(variable):
            yield Path(value)


def _of_tools(environ: Mapping[str, str]) -> Iterator[Path]:
    if not environ.get("HOME"):
        return
    home = Path(environ["HOME"])
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    poetry = Path(environ.get("POETRY_CACHE_DIR") or cache / "pypoetry")
    collections = (
        Path(environ.get("WORKON_HOME") or home / ".virtualenvs"),
        data / "virtualenvs",
        Path(environ.get("POETRY_VIRTUALENVS_PATH") or poetry / "virtualenvs"),
        Path(environ.get("UV_TOOL_DIR") or data / "uv/tools"),
        Path(environ.get("PIPX_HOME") or data / "pipx") / "venvs",
        home / ".local/pipx/venvs",
        Path(environ.get("PIXI_HOME") or home / ".pixi") / "envs",
    )
    for collection in collections:
        yield from _children(collection)
    yield from _conda(home, environ)


def _conda(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """The environments that conda lists, and those beside its usual roots."""
    try:
        listed = read_regular(home / ".conda/environments.txt").decode("utf-8", "replace").splitlines()
    except OSError:
        listed = []
    yield from (Path(line.strip()) for line in listed if line.strip())
    roots = [home / name for name in _CONDA_ROOTS] + [Path("/opt/conda"), Path("/opt/miniconda3")]
    if mamba := environ.get("MAMBA_ROOT_PREFIX"):
        roots.insert(0, Path(mamba))
    if program := environ.get("CONDA_EXE"):
        roots.insert(0, Path(program).parent.parent)
    for root in roots:
        yield root
        yield from _children(root / "envs")


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """Environments in a directory; what lies within one is its own affair."""
    if is_environment(folder):
        yield folder
        yield from _children(folder / "envs")  # a conda root holds its other environments
        return
    if depth:
        for child in _children(folder):
            if child.name not in _SKIPPED and str(child) not in _KERNEL:
                yield from _below(child, depth - 1)


def _children(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / e.name for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return []
