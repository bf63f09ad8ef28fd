"""Child processes: ask one, or isolate one with limits; each is gone when its caller is done with it.

Every child leads a session of its own, so that ending it also ends what it started itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from envsolve.errors import EnvsolveError, InterruptedBySignalError, interrupt_once

TIME_LIMIT = 5.0
"""Seconds after which a program that was asked a question is killed and counts as silent."""
ENDING_SIGNALS = () if sys.platform == "win32" else (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a program and leave Ctrl-C to Python."""
LIFELINE = "ENVSOLVE_LIFELINE"
"""Names to an isolated child the descriptor of a pipe that ends when this process does, even by SIGKILL."""

ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and cursor movements: Python 3.13 colours its tracebacks if FORCE_COLOR is set, as CI services do."""

_TAIL_BYTES = 64 * 1024
# Time for the pipe to empty once the process group is dead; only a descendant that left the group can hold it longer.
_DRAIN_SECONDS = 1.0
_FIRST_FREE = 3  # The numbers below belong to the standard streams, even if the caller has closed its own.
_PR_SET_PDEATHSIG = 1  # prctl(2)
# Loaded before any fork: between fork and exec the child must not import or open anything.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child process ended.

    Attributes:
        returncode: As in :mod:`subprocess`, negative for a signal; None if it reached its time limit and was killed.
        stdout: What it printed, if it was captured.
        stderr: The end of what it wrote to stderr; of both streams if they were streamed.
        seconds: Wall time.
    """

    returncode: int | None
    stdout: bytes = b""
    stderr: str = ""
    seconds: float = 0.0


def ask(command: Sequence[str], environ: Mapping[str, str], *, limit: float = TIME_LIMIT) -> str | None:
    """Run ``command`` and return what it printed (stdout, then stderr); a failure is an answer, never an exception.

    Returns:
        The text, or None if the program is missing, fails, prints nothing, or takes longer than ``limit`` seconds.
    """
    try:
        ended = capture(command, {**environ, "LC_ALL": "C"}, limit=limit)
    except (OSError, ValueError):
        return None
    return (ended.stdout.decode(errors="replace") + ended.stderr).strip() or None if ended.returncode == 0 else None


def capture(command: Sequence[str], environ: Mapping[str, str], *, limit: float | None = None) -> Ended:
    """Run ``command`` to its end and return all that it printed.

    Args:
        command: Program and arguments.
        environ: The child's whole environment.
        limit: Seconds after which it is killed with all that it started.

    Raises:
        OSError: The program cannot be started.
    """
    started = time.monotonic()
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,
    )
    with child:
        code: int | None
        try:
            out, err = child.communicate(timeout=limit)
            code = child.returncode
        except subprocess.TimeoutExpired:
            # A surviving grandchild (a version manager's shim is a shell that starts the real program) would hold the
            # pipe open and block the caller.
            kill_group(child)
            code, out, err = None, b"", b""
        except BaseException:  # Ctrl-C: the terminal's signal does not reach another session.
            kill_group(child)
            raise
    return Ended(code, out, err.decode(errors="replace"), time.monotonic() - started)


@contextlib.contextmanager
def isolated(
    command: Sequence[str], *, environ: Mapping[str, str], directory: Path, time_limit: float
) -> Iterator[Isolated]:
    """Start a command, and kill its whole process group when it ends or the block is left.

    Stdout is dropped and only the end of stderr is kept, so that a child that writes without end costs no memory. If
    this process is killed, Linux kills the child; the harness of the checks watches :data:`LIFELINE` and kills its
    group.

    Args:
        command: Program and arguments.
        environ: The child's whole environment.
        directory: Working directory.
        time_limit: Seconds after which the group is killed.

    Raises:
        OSError: The program cannot be started.
    """
    with _lifeline() as lifeline:
        process = subprocess.Popen(
            command,
            env={**environ, **({LIFELINE: str(lifeline)} if lifeline is not None else {})},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if lifeline is None else (lifeline,),
            preexec_fn=following_parent(),
        )
        child = Isolated(process, time_limit)
        try:
            yield child
        finally:  # Also on Ctrl-C: the terminal's signal does not reach another session.
            child.kill()


class Isolated:
    """A running child process; made by :func:`isolated`."""

    def __init__(self, process: subprocess.Popen[bytes], time_limit: float) -> None:
        assert process.stderr is not None
        self._process = process
        with process.stderr:
            self._tail = _Tail(os.dup(process.stderr.fileno()))
        self._started = time.monotonic()
        self._limit = time_limit
        self._ended: Ended | None = None

    def ended(self) -> Ended | None:
        """How it ended; None while it runs. A child past its time limit is killed with its group."""
        if self._ended is None:
            if _has_ended(self._process):
                self._ended = self._end(timed_out=False)
            elif time.monotonic() - self._started >= self._limit:
                self._ended = self._end(timed_out=True)
        return self._ended

    def kill(self) -> None:
        """Kill what is left of it."""
        if self._ended is None:
            self._ended = self._end(timed_out=False)

    def _end(self, *, timed_out: bool) -> Ended:
        kill_group(self._process)
        self._process.wait()
        seconds = time.monotonic() - self._started
        self._tail.join(_DRAIN_SECONDS)
        return Ended(None if timed_out else self._process.returncode, stderr=self._tail.text(), seconds=seconds)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended; on Linux it is not reaped yet.

    Until it is reaped no other process can get its number, so killing its group cannot hit a stranger. Nor is a lock
    held that Ctrl-C could leave behind, as in ``Popen.poll``.
    """
    if sys.platform == "linux":
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


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
        # If the caller has closed its standard streams, their numbers are free and the child's streams take them.
        reading = fcntl.fcntl(ends[0], fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
        stack.callback(os.close, reading)
        yield reading


class _Tail(threading.Thread):
    """Reads a pipe to its end and keeps the last bytes.

    It owns the descriptor: a descendant that left the group may write to the other end long after the child's end.
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
        return ESCAPES.sub("", self._kept.decode(errors="replace"))


def following_parent() -> Callable[[], None] | None:
    """A ``preexec_fn``: Linux kills the child when the thread that started it ends, however it ends."""
    return None if _LIBC is None else functools.partial(_die_with, os.getpid())


def _die_with(parent: int) -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # It was killed before this child asked to follow it.
        os._exit(1)


def kill_group(leader: subprocess.Popen[Any]) -> None:
    """Kill a child that was started with ``start_new_session``, and what is left of its process group."""
    if sys.platform == "win32":  # There are no process groups to kill.
        leader.kill()
        return
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # The child is reaped and left nobody behind.
    except PermissionError:
        leader.kill()  # A member changed its user; the child itself is still ours.


_arrived: list[int] = []


@contextlib.contextmanager
def signals_raised(*others: signal.Signals, hint: str | None = None) -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP raise :class:`InterruptedBySignalError`, so that cleaning up happens.

    Later signals are ignored until the block ends, because a second one must not stop the clean-up; the command line
    ignores a later Ctrl-C until it ends. Handlers of the caller and ignored signals (nohup) stay as they are. Python
    sets handlers in the main thread only; in any other thread the block changes nothing.

    Args:
        others: More signals to treat in this way, such as SIGINT.
        hint: Next step for the user, in the error.
    """
    defaults = (signal.SIG_DFL, signal.default_int_handler, interrupt_once)
    heeded = [number for number in (*ENDING_SIGNALS, *others) if signal.getsignal(number) in defaults]

    def interrupt(signum: int, frame: FrameType | None) -> None:
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)
        _arrived.append(signum)
        raise InterruptedBySignalError(signum, hint=hint)

    try:
        with _handled_by(interrupt, heeded):
            yield
    except EnvsolveError:
        raise
    except Exception as error:
        # Libraries make errors of their own of what is raised within them: `inspect` makes any a TypeError, and
        # ClusterShell calls it for each event.
        if heeded and _arrived:
            raise InterruptedBySignalError(_arrived[0], hint=hint) from error
        raise
    finally:
        if heeded:
            _arrived.clear()


@contextlib.contextmanager
def signals_postponed() -> Iterator[None]:
    """Hold SIGINT, SIGTERM and SIGHUP back until the block has ended, for what must not be left half done."""
    came: list[int] = []
    numbers = (signal.SIGINT, *ENDING_SIGNALS)
    heeded = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    with _handled_by(lambda signum, frame: came.append(signum), heeded):
        yield
    if came:
        signal.raise_signal(came[0])


@contextlib.contextmanager
def _handled_by(
    handler: Callable[[int, FrameType | None], object], numbers: Sequence[signal.Signals]
) -> Iterator[None]:
    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in numbers} if in_main else {}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            # The command line still has to print the error and end; a Ctrl-C during that would show as a traceback.
            if old is not interrupt_once or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, old)


def raise_arrived() -> None:
    """Raise again what :func:`signals_raised` has raised; long waits call this now and then.

    Python swallows an exception that is raised while it runs a hook of a fork, or a finaliser.

    Raises:
        InterruptedBySignalError: A signal came.
    """
    if _arrived:
        raise InterruptedBySignalError(_arrived[0])
