"""What stands already: the versions in a lock, and those in an environment, as something to stay with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from envsolve.errors import UsageError
from envsolve.files import is_file
from envsolve.install import record
from envsolve.install.files import read_lock

OURS = "envsolve"


def locked(path: Path) -> tuple[tuple[str, str], ...]:
    """Name and version of every package in a pylock.toml.

    Raises:
        UsageError: It is no lock.
    """
    return tuple((package.name, str(package.version)) for package in read_lock(path).pylock.packages if package.version)


def is_own_lock(path: Path) -> bool:
    """Whether a file is there that envsolve wrote as a lock, and that is whole."""
    try:
        return is_file(path) and read_lock(path).pylock.created_by == OURS
    except (OSError, UsageError):
        return False


def installed(prefix: Path) -> tuple[tuple[str, str], ...]:
    """Name and version of every package in an environment.

    Raises:
        UsageError: There is none.
    """
    found = tuple(_installed(prefix))
    if not found:
        raise UsageError(f"no environment with packages at {prefix}", hint="name its root folder: --prefix DIR")
    return found


def _installed(prefix: Path) -> Iterator[tuple[str, str]]:
    for distribution in record.installed(prefix):
        metadata = distribution.metadata
        if metadata["Name"] and metadata["Version"]:
            yield metadata["Name"], metadata["Version"]
