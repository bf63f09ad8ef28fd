"""The directory beside the prefix in which an environment is made, and the one step that puts it in place.

Nothing touches the prefix before :meth:`Staging.swap`. Until then an older environment there works as ever, and a
prefix that did not exist does not exist. Beside a prefix ``P/name`` lie, only during an install:

    P/.name.envsolve.lock   held with flock(2) by the install
    P/.name.envsolve/env    the environment being made; after the swap, the old one
    P/.name.envsolve/old    the old environment, for the instant between two renames where they cannot be exchanged
    P/.name.envsolve/tmp    temporary files of the package manager
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envsolve.errors import UsageError
from envsolve.install.errors import InstallError, Progress, Step
from envsolve.system.processes import signals_postponed

# Processes that a killed install left behind, found by the staging directory that they work in.
#
# Linux ends the package manager when its install is killed, but not what the manager itself started: a compiler or a
# build back end. Every child of an install has the staging directory in its environment, and passes it on.


MARK = "ENVSOLVE_STAGING"
"""The variable that names the staging directory to every process of an install."""

_ENDING_SECONDS = 5.0
_PASSES = 10  # a process may start another while it is being killed
_PROC = Path("/proc")


def end(folder: Path) -> None:
    """Kill every process that works in the staging directory ``folder``, and wait until it is gone.

    Only for the holder of the install's lock: the install that those processes belong to is dead then.
    """
    if not hasattr(os, "pidfd_open") or not _PROC.is_dir():
        return  # Not Linux: there is no way to find them.
    for _ in range(_PASSES):
        if not [pid for pid in _numbers() if pid != os.getpid() and _end_one(pid, os.fsencode(folder))]:
            return


def _end_one(pid: int, folder: bytes) -> bool:
    """Whether the process works in the directory; it is killed then, and gone."""
    try:
        descriptor = os.pidfd_open(pid)  # pins the process: its number cannot pass to another one meanwhile
    except OSError:
        return False
    try:
        if not _works_in(pid, folder):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], _ENDING_SECONDS)
    except OSError:
        return False  # It ended by itself.
    finally:
        os.close(descriptor)
    return True


def _numbers() -> Iterator[int]:
    for path in _PROC.iterdir():
        if path.name.isdecimal():
            yield int(path.name)


def _works_in(pid: int, folder: bytes) -> bool:
    """Whether a process was started by an install in ``folder``, or runs the Python in it."""
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        program = (_PROC / str(pid) / "cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return False  # Another user's, or gone.
    return MARK.encode() + b"=" + folder in variables or program.startswith(folder + b"/")


_NAME_MAX = 255
_POLL_SECONDS = 0.1
_AT_FDCWD = -100  # fcntl.h
_RENAME_EXCHANGE = 2  # linux/fs.h
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Staging:
    """The working directory of one install; only the holder of the lock has one."""

    prefix: Path
    folder: Path

    @property
    def environment(self) -> Path:
        """Where the environment is made."""
        return self.folder / "env"

    @property
    def temporary(self) -> Path:
        """For the package manager's temporary files: on the prefix's disk, and gone with the directory."""
        return self.folder / "tmp"

    def swap(self) -> None:
        """Put the environment at the prefix; what was there before is now in the working directory, to be deleted."""
        if not self.prefix.exists() or not any(self.prefix.iterdir()):
            self.environment.rename(self.prefix)
        elif not exchange(self.environment, self.prefix):
            self.prefix.rename(self.folder / "old")
            self.environment.rename(self.prefix)


@contextlib.contextmanager
def opened(prefix: Path, *, wait: float, progress: Progress) -> Iterator[Staging]:
    """Hold the prefix's lock and a fresh working directory; both are gone when the block ends, even by an exception.

    First undo what a killed install left: an old environment that it was about to replace goes back to its
    place, and the rest is deleted.

    Args:
        prefix: A resolved prefix; the directory around it exists.
        wait: Seconds to wait for another install into the same prefix.

    Raises:
        UsageError: Another install still holds the prefix after ``wait`` seconds, or a link is in the way.
    """
    stem = _stem(prefix.name)
    folder = prefix.parent / stem
    if folder.is_symlink():
        # Deleting and changing modes would follow it, for example in a cloned repository that contains such a link.
        raise UsageError(
            f"envsolve would build the environment in {folder}, which is a link",
            hint="delete the link, or choose another directory with --prefix",
        )
    with _locked(prefix.parent / f"{stem}.lock", prefix, wait=wait, progress=progress):
        _recover(prefix, folder)
        staging = Staging(prefix, folder)
        try:
            folder.mkdir(mode=0o700)
            staging.temporary.mkdir()
            yield staging
        finally:
            with signals_postponed():
                _recover(prefix, folder)


def exchange(one: Path, other: Path) -> bool:
    """Swap two directories in one step (renameat2, Linux 3.15); False if the kernel or the file system cannot."""
    renameat2 = getattr(_LIBC, "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def _stem(name: str) -> str:
    """A hidden name for what lies beside the prefix; its hash where the name nears the file system's limit."""
    stem = f".{name}.envsolve"
    if len(os.fsencode(stem)) + len(".lock") <= _NAME_MAX:
        return stem
    return f".{hashlib.sha256(os.fsencode(name)).hexdigest()}.envsolve"


def _recover(prefix: Path, folder: Path) -> None:
    """Put back an environment that was moved aside and not yet replaced; delete everything else of an install."""
    old = folder / "old"
    if old.exists() and not prefix.exists():
        old.rename(prefix)
    if folder.exists():
        end(folder)
        _delete(folder)


def _delete(folder: Path) -> None:
    """Delete a directory, read-only directories inside it included."""
    try:
        shutil.rmtree(folder)
    except OSError:
        for path, names, _ in os.walk(folder):
            for inner in (Path(path, name) for name in names):
                if not inner.is_symlink():
                    inner.chmod(0o700)
        shutil.rmtree(folder)


@contextlib.contextmanager
def _locked(path: Path, prefix: Path, *, wait: float, progress: Progress) -> Iterator[None]:
    deadline = time.monotonic() + wait
    told = False
    while (descriptor := _try_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise UsageError(
                f"another install into {prefix} is running", hint="wait for it to end and run the same command again"
            )
        if not told:
            progress(Step("wait", f"waiting for another install into {prefix}"))
            told = True
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still held, so that nobody can hold a lock on a deleted file
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock, or None if another process does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UsageError(
            f"cannot write the temporary directory in which the environment is built: {error}",
            hint="choose a directory in which you can write with --prefix",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The holder deletes the file when it ends: what was opened before and locked after is a lock on nothing.
        if _same_file(descriptor, path):
            return descriptor
    except BlockingIOError:
        pass
    except OSError as error:
        os.close(descriptor)
        raise InstallError(f"the file system of {path.parent} cannot lock files: {error}") from error
    os.close(descriptor)
    return None


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
