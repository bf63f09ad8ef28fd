"""What answers beside the question: this program and what it solves with, told by its files, and the facts."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from envsolve import STARTED

# Nanoseconds by which the clocks of file systems may be behind this computer's.
_MARGIN = 2 * 10**9
_STARTED = STARTED - _MARGIN
#: What takes part in an answer; who fetches does not, since an answer stands on what was fetched.
_PACKAGES = ("envsolve", "packaging", "resolvelib", "msgspec")

Files = tuple[str, tuple[tuple[str, int, int], ...]]
"""A folder, and of every file below it the path, the time of its last change in nanoseconds, and its size."""


def program() -> list[object] | None:
    """Python and the packages that make an answer; None where their files cannot be told, or are newer than this run.

    What changed since the start may have been loaded before that or after it: nobody knows whose answer it would be.
    """
    found: list[object] = [sys.version]
    for name in _PACKAGES:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            return None
        folder = Path(next(iter(spec.submodule_search_locations)))
        try:
            changed, files = _files(str(folder))
            # Installers may give every release's files one date: the name of its record has the version.
            with os.scandir(folder.parent) as beside:
                records = sorted(entry.name for entry in beside if entry.name.startswith(f"{name}-"))
        except OSError:
            return None
        if changed >= _STARTED:
            return None
        found += [records, (str(folder), files)]
    return found


def facts(folder: Path) -> Files:
    """The files of a folder of the catalogue; none where it is not there, or no folder (``/dev/null``)."""
    try:
        return str(folder), _files(str(folder))[1]
    except (FileNotFoundError, NotADirectoryError):
        return str(folder), ()


def _files(folder: str) -> tuple[int, tuple[tuple[str, int, int], ...]]:
    """When anything below a folder changed last, its mode and links included; and its files, bar compiled ones."""
    found: list[tuple[str, int, int]] = []
    changed, waiting = 0, [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name == "__pycache__":
                    continue
                if entry.is_dir():
                    waiting.append(entry.path)
                    continue
                status = entry.stat()
                changed = max(changed, status.st_ctime_ns)
                found.append((entry.path[len(folder) :], status.st_mtime_ns, status.st_size))
    return changed, tuple(sorted(found))
