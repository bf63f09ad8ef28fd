"""A folder for what one check writes, removed with it; what a killed run left behind is removed by the next run.

A folder is locked for as long as its run lives. A lock of the kernel's, unlike a process number, cannot outlive its
process or be taken for another's, also where containers share a ``/tmp``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from envsolve.errors import EnvsolveError

PREFIX = "envsolve-verify-"
_HINT = "set TMPDIR to a folder that can be written to and has room"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder, hold it, and remove it with all that is in it.

    Raises:
        EnvsolveError: There is no place for it.
    """
    path, lock = _made()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_abandoned() -> None:
    """Remove the folders of runs that are no more; those of other users, and of running ones, stay."""
    for path in _place().glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if sys.platform == "win32" or path.lstat().st_uid != os.getuid():
                continue
            lock = _lock(path, wait=False)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _place() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise EnvsolveError("there is no folder for temporary files that can be written to", hint=_HINT) from error


def _made() -> tuple[Path, int | None]:
    """A new folder and its lock; made again where another run took it for abandoned before it was locked."""
    while True:
        try:
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_place()))
        except OSError as error:
            reason = f"no folder can be made in {_place()}: {error.strerror or error}"
            raise EnvsolveError(reason, hint=_HINT) from error
        lock = _lock(path, wait=True)
        if path.exists():
            return path, lock
        if lock is not None:
            os.close(lock)


def _lock(path: Path, *, wait: bool) -> int | None:
    """An open, locked descriptor of a folder; None where another holds it, or the system has no such locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
