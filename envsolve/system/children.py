"""A child process: bounded in time and output, and gone with all its descendants afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envsolve.system.processes import die_with_parent, kill_group

_TAIL_BYTES = 64 * 1024
# Time for the pipe to empty once the process group is dead; only a descendant that left the group can hold it longer.
_DRAIN_SECONDS = 1.0
#: What colours a terminal: Python 3.13 writes it into a traceback where FORCE_COLOR is set, as CI services do.
_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# Below are the standard streams, also where the caller has closed its own.
_FIRST_FREE = 3
LIFELINE = "ENVSOLVE_LIFELINE"
"""Names to the child the descriptor of a pipe that ends when this process does, even by SIGKILL."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child process ended.

    Attributes:
        returncode: As :mod:`subprocess` gives it, negative for a signal; None where the time limit was reached.
        stderr: The last part of what it wrote to stderr, without colours.
        seconds: Wall time.
    """

    returncode: int | None
    stderr: str
    seconds: float


class Running:
    """A child process that was started; made by :func:`running`."""

    def __init__(self, process: subprocess.Popen[bytes], time_limit: float) -> None:
        assert process.stderr is not None
        self._process = process
        with process.stderr:
            self._tail = _Tail(os.dup(process.stderr.fileno()))
        self._started = time.monotonic()
        self._limit = time_limit
        self._ended: Ended | None = None

    def ended(self) -> Ended | None:
        """How it ended; None while it runs. One that is past its time limit is killed, with its whole group."""
        if self._ended is None:
            if _has_ended(self._process):
                self._ended = self._end(timed_out=False)
            elif time.monotonic() - self._started >= self._limit:
                self._ended = self._end(timed_out=True)
        return self._ended

    def kill(self) -> None:
        """Kill what is left of it; nothing where it has ended."""
        if self._ended is None:
            self._ended = self._end(timed_out=False)

    def _end(self, *, timed_out: bool) -> Ended:
        kill_group(self._process)
        self._process.wait()
        seconds = time.monotonic() - self._started
        self._tail.join(_DRAIN_SECONDS)
        return Ended(None if timed_out else self._process.returncode, self._tail.text(), seconds)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended; where the system can tell, it is not reaped yet.

    While it is not, its number is nobody else's, and killing its group cannot hit a stranger. Nor is a lock held that
    Ctrl-C could leave behind, as within ``Popen.poll``.
    """
    if sys.platform == "linux":
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


@contextlib.contextmanager
def running(
    command: Sequence[str], *, environment: Mapping[str, str], folder: Path, time_limit: float
) -> Iterator[Running]:
    """Run a command in a process group of its own, and kill the whole group when it ends or the block is left.

    Stdout is dropped; only the tail of stderr is kept, so that a child which writes without end costs no memory. Where
    this process is killed outright, Linux kills the child; the harness watches :data:`LIFELINE` and kills its group.

    Args:
        command: Program and arguments.
        environment: The child's whole environment.
        folder: Working folder.
        time_limit: Seconds after which the group is killed.

    Raises:
        OSError: The program cannot be started.
    """
    with _lifeline() as lifeline:
        process = subprocess.Popen(
            command,
            env={**environment, **({LIFELINE: str(lifeline)} if lifeline is not None else {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if lifeline is None else (lifeline,),
            preexec_fn=None if lifeline is None else die_with_parent,
        )
        child = Running(process, time_limit)
        try:
            yield child
        finally:  # Also on Ctrl-C: the terminal's signal does not reach another session.
            child.kill()


@contextlib.contextmanager
def _lifeline() -> Iterator[int | None]:
    """The reading end of a pipe that nobody writes to; None on Windows, whose children inherit no descriptors."""
    if sys.platform == "win32":
        yield None
        return
    import fcntl

    with contextlib.ExitStack() as stack:
        ends = os.pipe()
        for end in ends:
            stack.callback(os.close, end)
        # Where the caller has closed its standard streams their numbers are free, and the child's streams take them.
        reading = fcntl.fcntl(ends[0], fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
        stack.callback(os.close, reading)
        yield reading


class _Tail(threading.Thread):
    """Reads a pipe to its end and keeps the last bytes; the descriptor is its own.

    A descendant that left the group may hold the other end, and write to it, long after the child's end.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(daemon=True)
        self._descriptor = descriptor
        self._kept = b""
        self.start()

    def run(self) -> None:
        try:
            while chunk := os.read(self._descriptor, _TAIL_BYTES):
                self._kept = (self._kept + chunk)[-_TAIL_BYTES:]
        finally:
            os.close(self._descriptor)

    def text(self) -> str:
        return _COLOURS.sub("", self._kept.decode(errors="replace"))
