"""Where an environment keeps its Python."""

from __future__ import annotations

import os
from pathlib import Path

from envsolve.errors import UsageError
from envsolve.files import is_file, is_folder

# venv and conda on POSIX, venv on Windows, conda on Windows.
_PLACES = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
_MAKE_ANEW = "Run `envsolve install` again with this --prefix, or name the interpreter with --python."


def interpreter_of(prefix: Path) -> Path:
    """Find the interpreter of the environment at ``prefix``.

    Links are left as they are: a virtual environment is found through the path by which its Python is called.

    Args:
        prefix: Root folder of a virtual environment or a conda environment.

    Returns:
        The absolute path of its Python.

    Raises:
        UsageError: ``prefix`` is no environment, or one that is not whole.
    """
    if not is_folder(prefix):
        raise UsageError(f"{prefix} {_why_no_folder(prefix)}", hint="--prefix takes the root folder of an environment.")
    candidates = [prefix.absolute() / place for place in _PLACES]
    found = next((path for path in candidates if is_file(path)), None)
    if found is None:
        raise UsageError(_what_is_wrong(prefix, candidates), hint=_MAKE_ANEW)
    if not os.access(found, os.X_OK):
        raise UsageError(f"{found} may not be executed", hint="Check its mode, and whether its disk is mounted noexec.")
    return found


def _why_no_folder(prefix: Path) -> str:
    try:
        prefix.stat()
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:  # a folder above it may not be entered, say
        return f"cannot be read: {error.strerror}"
    return "is not a folder"


def _what_is_wrong(prefix: Path, candidates: list[Path]) -> str:
    dangling = next((path for path in candidates if path.is_symlink()), None)
    if dangling is not None:
        return f"{prefix} has lost its Python: {dangling} leads to {dangling.readlink()}, which is gone"
    if (prefix / "conda-meta").is_dir():
        return f"{prefix} is a conda environment without Python"
    if (prefix / "pyvenv.cfg").is_file():
        return f"{prefix} is a half-made virtual environment: it has no Python"
    return f"{prefix} holds no Python environment"
