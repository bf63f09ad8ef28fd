"""Python interpreters on this host."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from envsolve.files import real_path
from envsolve.machine.model import Interpreter
from envsolve.machine.search_path import folders, programs
from envsolve.processes import ask

_NAME = re.compile(r"python(?:[23](?:\.\d+)?t?)?")
_VERSION = re.compile(r"^\d+\.\d+\.\d+$", re.MULTILINE)
# Runs on every Python since 2.7; -E and -S keep the caller's variables and start-up files out.
_QUESTION = ["-E", "-S", "-c", "import sys; sys.stdout.write('%d.%d.%d' % sys.version_info[:3])"]


def find_interpreters(environ: Mapping[str, str], root: Path = Path("/")) -> list[Path]:
    """Interpreters on ``PATH``, each real program once under the first name that leads to it.

    A version manager's shim is no interpreter but a script that picks one by working directory: it stands for every
    version that its manager has installed.
    """
    found: dict[Path, Path] = {}
    for path in programs(folders(environ, root), _NAME):
        for real_one in _behind(path):
            found.setdefault(real_path(real_one), real_one)
    return list(found.values())


def read_interpreter(path: Path, environ: Mapping[str, str]) -> Interpreter | None:
    """Version of the interpreter at ``path``; None where it does not run."""
    match = _VERSION.search(ask([str(path), *_QUESTION], environ) or "")
    return Interpreter(match[0], str(path)) if match else None


def running_interpreter() -> Interpreter:
    """The interpreter that runs this code."""
    return Interpreter(platform.python_version(), sys.executable)


def is_shim(path: Path) -> bool:
    """Whether ``path`` is a script of a version manager (pyenv, asdf and their like keep them in ``shims``)."""
    if path.parent.name != "shims":
        return False
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _behind(path: Path) -> Iterator[Path]:
    """What ``path`` leads to: itself, or for a shim the interpreters that its manager has installed."""
    if not is_shim(path):
        yield path
        return
    manager = path.parent.parent
    for folder in ("versions", "installs/python"):
        for python in sorted((manager / folder).glob("*/bin/python")):
            if os.access(python, os.X_OK):
                yield python
