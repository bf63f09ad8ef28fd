"""Processes that a killed install left behind, found by the staging folder that they work in.

Linux ends the package manager when its install is killed, but not what the manager itself started: a compiler, a build
back end. Every child of an install carries the staging folder in its environment, and hands it on.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

MARK = "ENVSOLVE_STAGING"
"""The variable that names the staging folder to every process of an install."""

_ENDING_SECONDS = 5.0
_PASSES = 10  # a process may start another while it is being killed
_PROC = Path("/proc")


def end(folder: Path) -> None:
    """Kill every process that works in the staging folder ``folder``, and wait until it is gone.

    Only for the holder of the install's lock: the install that those processes belong to is dead then.
    """
    if not hasattr(os, "pidfd_open") or not _PROC.is_dir():
        return  # Not Linux: there is no way to find them.
    for _ in range(_PASSES):
        if not [pid for pid in _numbers() if pid != os.getpid() and _end_one(pid, os.fsencode(folder))]:
            return


def _end_one(pid: int, folder: bytes) -> bool:
    """Whether the process works in the folder; it is killed then, and gone."""
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
    """Whether a process was started by an install that works in ``folder``, or runs the Python that lies in it."""
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        program = (_PROC / str(pid) / "cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return False  # Another user's, or gone.
    return MARK.encode() + b"=" + folder in variables or program.startswith(folder + b"/")
