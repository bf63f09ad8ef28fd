"""What stands at a prefix, and whether an install may put an environment there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from envsolve.errors import UsageError
from envsolve.install import record

# What venv, pip, uv and wheels put at the top of a virtual environment. Anything else is the user's own, and replacing
# the environment would destroy it.
_OWN_ENTRIES = frozenset(
    {"bin", "etc", "include", "lib", "lib64", "man", "pyvenv.cfg", "share", record.FOLDER}
    | {".gitignore", ".lock", "CACHEDIR.TAG"}
)


def resolved(prefix: Path) -> Path:
    """The prefix with every folder above it resolved; the last part is kept, so that a link there is seen.

    Raises:
        UsageError: It is the root folder, or its name cannot stand in a script's first line.
    """
    absolute = Path(os.path.abspath(prefix))  # noqa: PTH100  (resolve() would follow a link at the prefix itself)
    path = absolute.parent.resolve() / absolute.name
    if not absolute.name:
        raise UsageError(f"{prefix} cannot hold an environment")
    if any(not character.isprintable() for character in str(path)):
        raise UsageError(f"the prefix {str(path)!r} has characters that cannot be printed")
    return path


def make_parent(prefix: Path) -> None:
    """Make the folder around the prefix.

    Raises:
        UsageError: It cannot be made, or is no folder.
    """
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"no folder can be made at {prefix.parent}: {error}") from error


def claim(prefix: Path) -> None:
    """Check that an environment may be put at ``prefix``: nothing is there, an empty folder, or an older environment.

    Raises:
        UsageError: Anything else is there, or the folder around it cannot be written.
    """
    reason = next((text for stands, text in _REFUSALS if stands(prefix)), None)
    if reason is not None:
        raise UsageError(f"{prefix} {reason}", hint="give --prefix a new folder, or empty this one yourself")
    foreign = sorted(_entries(prefix) - _OWN_ENTRIES - record.entries(prefix)) if _entries(prefix) else []
    if foreign:
        raise UsageError(
            f"{prefix} is an environment that also holds other files ({', '.join(foreign[:3])}), "
            "which replacing it would delete",
            hint="move them elsewhere, or give --prefix a new folder",
        )
    if not os.access(prefix.parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {prefix.parent} cannot be written, and the environment is made there first")


def _entries(prefix: Path) -> frozenset[str]:
    return frozenset(path.name for path in prefix.iterdir()) if prefix.is_dir() else frozenset()


_REFUSALS: tuple[tuple[Callable[[Path], bool], str], ...] = (
    (Path.is_symlink, "is a symbolic link"),
    (lambda prefix: prefix.exists() and not prefix.is_dir(), "is a file"),
    (lambda prefix: prefix.is_dir() and not os.access(prefix, os.R_OK | os.W_OK | os.X_OK), "cannot be written"),
    (Path.is_mount, "is a mount point, which cannot be replaced in one step"),
    (lambda prefix: (prefix / "conda-meta").is_dir(), "is a conda environment"),
    (
        lambda prefix: bool(_entries(prefix)) and not (prefix / "pyvenv.cfg").is_file(),
        "holds other files and is not a virtual environment",
    ),
    (lambda prefix: Path(sys.prefix).resolve() == prefix, "is the environment that envsolve itself runs in"),
)
