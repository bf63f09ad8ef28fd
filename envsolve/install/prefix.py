"""What stands at a prefix, and whether an install may put an environment there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from envsolve.errors import UsageError
from envsolve.files import real_path
from envsolve.install import record

_NAME_MAX = 255
# The separator of PATH, which venv refuses, and what the activation scripts of Python before 3.12.8 do not quote.
_UNUSABLE = ':"$`\\'


def resolved(prefix: Path) -> Path:
    """The prefix with every folder above it resolved; the last part is kept, so that a link there is seen.

    Raises:
        UsageError: It is the root folder, the current one or one above it (an empty text means the current one, too),
            or no virtual environment can have its name.
    """
    absolute = Path(os.path.abspath(prefix))  # noqa: PTH100  (resolve() would follow a link at the prefix itself)
    path = real_path(absolute.parent) / absolute.name
    if not absolute.name:
        raise UsageError(f"{prefix} cannot hold an environment")
    if any(not character.isprintable() for character in str(path)):
        raise UsageError(f"the prefix {str(path)!r} has characters that cannot be printed")
    unusable = sorted(set(str(path)) & set(_UNUSABLE))
    if unusable:
        raise UsageError(
            f"the prefix {path} has {' and '.join(unusable)} in it, which a virtual environment's scripts cannot bear",
            hint="give --prefix a folder with another name",
        )
    if any(len(os.fsencode(part)) > _NAME_MAX for part in absolute.parts):
        raise UsageError(f"a name in the prefix is longer than {_NAME_MAX} bytes", hint="give --prefix a shorter name")
    if path in (here := Path.cwd(), *here.parents):
        raise UsageError(
            f"the prefix {str(prefix)!r} is the current folder or one above it, which cannot be replaced in one step",
            hint="name another folder with --prefix, for example --prefix env",
        )
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
        raise UsageError(f"{prefix} {reason}", hint="give --prefix a new folder, or remove what is there yourself")
    outer = next((folder for folder in prefix.parents if _is_environment(folder)), None)
    if outer is not None:
        raise UsageError(
            f"{prefix} lies inside the environment {outer}, whose next update would delete it",
            hint="give --prefix a folder outside of it",
        )
    if not os.access(prefix.parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {prefix.parent} cannot be written, and the environment is made there first")


def check_replaceable(prefix: Path) -> None:
    """Check that replacing the environment at ``prefix``, if there is one, deletes nothing of its user's.

    Raises:
        UsageError: It holds files that no install put there.
    """
    own = record.unaccounted(prefix) if _entries(prefix) else []
    if own:
        more = f" and {len(own) - 3} more" if len(own) > 3 else ""
        raise UsageError(
            f"{prefix} is an environment that also holds other files ({', '.join(own[:3])}{more}), "
            "which replacing it would delete",
            hint="move them elsewhere, or give --prefix a new folder",
        )


def _entries(prefix: Path) -> frozenset[str]:
    return frozenset(path.name for path in prefix.iterdir()) if prefix.is_dir() else frozenset()


def _is_conda(prefix: Path) -> bool:
    return (prefix / "conda-meta").is_dir()


def _is_environment(folder: Path) -> bool:
    """Whether it is a virtual environment, or a conda environment of ours; other conda environments hold homes."""
    return (folder / "pyvenv.cfg").is_file() or (_is_conda(folder) and record.made_here(folder))


_REFUSALS: tuple[tuple[Callable[[Path], bool], str], ...] = (
    (Path.is_symlink, "is a symbolic link"),
    (lambda prefix: prefix.exists() and not prefix.is_dir(), "is a file"),
    (lambda prefix: prefix.is_dir() and not os.access(prefix, os.R_OK | os.W_OK | os.X_OK), "cannot be written"),
    (Path.is_mount, "is a mount point, which cannot be replaced in one step"),
    (
        lambda prefix: _is_conda(prefix) and not record.made_here(prefix),
        "is a conda environment that envsolve did not make (or whose record in it is damaged)",
    ),
    (
        lambda prefix: bool(_entries(prefix)) and not (prefix / "pyvenv.cfg").is_file() and not _is_conda(prefix),
        "holds other files and is no environment",
    ),
    (
        lambda prefix: bool(_entries(prefix)) and not record.made_here(prefix),
        "is a virtual environment that envsolve did not make (or whose record in it is damaged)",
    ),
    (lambda prefix: Path(sys.prefix).resolve() == prefix, "is the environment that envsolve itself runs in"),
)
