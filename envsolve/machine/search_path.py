"""Programs on ``PATH``: every match in search order, once each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envsolve.files import is_file


def folders(environ: Mapping[str, str], root: Path = Path("/")) -> list[Path]:
    """The folders of ``PATH`` in order, without repetition; absolute ones are taken below ``root``."""
    entries = [entry for entry in environ.get("PATH", "").split(os.pathsep) if entry]
    return list(dict.fromkeys(below(root, entry) for entry in entries))


def below(root: Path, path: str) -> Path:
    """``path`` as seen from a file system whose root folder is ``root``."""
    if root == Path("/") or not path.startswith("/"):
        return Path(path)
    return root / path.lstrip("/")


def programs(search: Sequence[Path], name: re.Pattern[str]) -> Iterator[Path]:
    """Executable files whose whole name matches, in search order; sorted within a folder, shortest name first.

    The plain name (``gcc``) comes before its versioned sisters (``gcc-12``), as it is what a build would call.
    """
    for folder in search:
        try:
            names = [entry.name for entry in os.scandir(folder) if name.fullmatch(_stem(entry.name))]
        except OSError:
            continue
        for found in sorted(names, key=lambda text: (len(text), text)):
            path = folder / found
            if is_file(path) and os.access(path, os.X_OK):
                yield path


def _stem(name: str) -> str:
    return name[:-4] if name.lower().endswith(".exe") else name
