"""Child processes that end when they must, with all that they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from envsolve.errors import EnvsolveError

TIME_LIMIT = 5.0
"""Seconds that a program that was asked something may take before it is killed and counts as silent."""

_PR_SET_PDEATHSIG = 1  # prctl(2)
# Loaded before any fork: between fork and exec the child must not import or open anything.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class InterruptedBySignalError(EnvsolveError):
    """SIGTERM or SIGHUP ended the work; the exit code is the shell's for that signal, 143 or 129."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


_arrived: list[int] = []


@contextlib.contextmanager
def signals_raised() -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP raise :class:`InterruptedBySignalError`, so that cleaning up happens.

    What is handled or ignored already stays so: a caller's own handlers, and nohup. Python can set handlers in the main
    thread alone; in any other the block changes nothing.
    """
    heeded: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread() and sys.platform != "win32":
        heeded = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]

    def interrupt(signum: int, frame: FrameType | None) -> None:
        for number in heeded:  # A second one must not break off the cleaning up.
            signal.signal(number, signal.SIG_IGN)
        _arrived.append(signum)
        raise InterruptedBySignalError(signum)

    try:
        for number in heeded:
            signal.signal(number, interrupt)
        yield
    finally:
        _arrived.clear()
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)


def raise_arrived() -> None:
    """Raise, once more, what :func:`signals_raised` raised; who waits for long calls it now and then.

    Python swallows an exception that arises while it runs a hook of a fork, or a finaliser.

    Raises:
        InterruptedBySignalError: A signal has come.
    """
    if _arrived:
        raise InterruptedBySignalError(_arrived[0])


def die_with_parent() -> None:
    """A ``preexec_fn``: on Linux the kernel kills the child when the thread that started it ends, however it ends."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def ask(command: Sequence[str], environ: Mapping[str, str], *, limit: float = TIME_LIMIT) -> str | None:
    """Run ``command`` and return what it printed (stdout, then stderr); its failure is an answer, never an exception.

    The child leads its own session, so that a time-out also ends what it started itself (a version manager's shim is a
    shell that starts the real program): a surviving grandchild would hold the pipe open and block the caller.

    Returns:
        The text, or None where the program is missing, fails, prints no text, or takes longer than ``limit`` seconds.
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environ, "LC_ALL": "C"},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    with child:
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            kill_group(child)
            return None
        except BaseException:  # Ctrl-C: the terminal's signal does not reach another session
            kill_group(child)
            raise
    return (out + err).strip() or None if child.returncode == 0 else None


def kill_group(leader: subprocess.Popen[Any]) -> None:
    """Kill a child that was started with ``start_new_session``, and whatever is left of its process group."""
    if sys.platform == "win32":  # No process groups to kill: the child alone.
        leader.kill()
        return
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # The child is reaped and left nobody behind.
    except PermissionError:
        leader.kill()  # A member changed its user; the child itself is still ours.
