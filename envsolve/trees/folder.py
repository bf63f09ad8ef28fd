"""A folder as it is built: what earlier builds and checkouts left in it is not part of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

# What builds in the folder itself leave. An object made for other GPUs that lies there would be taken for up to date.
_LEFT_BEHIND = ("__pycache__", "_skbuild", ".tox", ".nox")
_BUILT = ("lib", "temp", "bdist")
_BLOCK = 1 << 20


def copied(folder: Path, target: Path) -> None:
    """Copy a folder for a build, which may then write into it; environments in it, this one's too, are left out.

    Raises:
        OSError: A part of it cannot be read.
    """
    shutil.copytree(folder, target, symlinks=True, ignore=_left_out)


def digest(folder: Path) -> str:
    """The sha256 of all that :func:`copied` copies, the records of version control left out.

    Raises:
        OSError: A part of it cannot be read.
    """
    whole = hashlib.sha256()
    for name, path in _files(folder):
        whole.update(f"{name}\0{'x' if os.access(path, os.X_OK) else ''}\0".encode("utf-8", "surrogateescape"))
        whole.update(_content(path))
    return whole.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, files in os.walk(folder):
        out = _left_out(place, [*folders, *files])
        folders[:] = sorted(name for name in folders if name not in out and name != ".git")
        for name in sorted(name for name in (*files, *folders) if name not in out):
            path = Path(place, name)
            if path.is_symlink() or name not in folders:
                yield str(path.relative_to(folder)), path


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(path.readlink())
    part = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            part.update(block)
    return part.digest()


def _left_out(place: str, names: list[str]) -> set[str]:
    """The names in a folder that are no part of its sources."""
    found = {name for name in names if name in _LEFT_BEHIND or name.endswith((".egg-info", ".pyc"))}
    if Path(place).name == "build":
        found |= {name for name in names if name.startswith(_BUILT)}
    # A pipe would be waited on for ever; a socket or a device is nothing that is built either.
    found |= {name for name in names if not _is_copied(Path(place, name))}
    found |= {name for name in names if name.endswith((".envsolve", ".envsolve.lock")) and name.startswith(".")}
    return found | {name for name in names if Path(place, name, "pyvenv.cfg").is_file()}


def _is_copied(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # an editor's, which came and went
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
