"""Finding the environments of a machine: where each tool keeps its own, and those in given folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envsolve.environment.layout import is_environment
from envsolve.machine.tools import find_interpreters
from envsolve.system.files import read_regular, real_path

#: Levels below a given folder that are looked at.
_DEPTH = 4
#: Folders that hold thousands of others and no environment.
_SKIPPED = frozenset({".git", ".hg", ".tox", ".nox", "node_modules", "__pycache__", "site-packages"})
#: What the kernel shows as files.
_KERNEL = frozenset({"/proc", "/sys", "/dev"})
_CONDA_ROOTS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda", "conda")


def find_environments(folders: Sequence[Path], environ: Mapping[str, str]) -> list[Path]:
    """Root folders of environments, each once: the active one, those of each tool, then those in ``folders``.

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
    """Root folders of the Pythons on PATH that are no environments, where they have, or their user has, a torch."""
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
    """Environments in a folder; what lies within one is its own affair."""
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
