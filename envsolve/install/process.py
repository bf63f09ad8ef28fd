"""Running a child so that it never outlives the install, and turning signals into exceptions."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from envsolve.install.errors import InstallInterruptedError
from envsolve.processes import kill_group

_KEPT_LINES = 200
_GRACE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1  # prctl(2)

# Loaded before any fork: between fork and exec the child must not import or open anything.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: exit status (negative: the signal) and its last lines, stdout and stderr together."""

    code: int
    output: tuple[str, ...]


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    keep_open: Sequence[int] = (),
) -> Ended:
    """Run ``command`` to its end, handing over each line of output as it comes.

    The child leads its own process group, and any exception here (Ctrl-C included) ends that whole group first. Where
    this process is killed outright, Linux kills the child too; ``keep_open`` hands the child the install's lock, so
    that even a child that lingers holds off the next install.
    """
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=tuple(keep_open),
        preexec_fn=_die_with_parent,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    kept: deque[str] = deque(maxlen=_KEPT_LINES)
    try:
        assert process.stdout is not None  # PIPE was asked for
        with process.stdout:
            for line in process.stdout:
                kept.append(line.rstrip())
                on_line(kept[-1])
        return Ended(process.wait(), tuple(kept))
    except BaseException:
        _end_group(process)
        raise


@contextlib.contextmanager
def signals_raised() -> Iterator[None]:
    """Within the block, SIGINT, SIGTERM and SIGHUP raise :class:`InstallInterruptedError`.

    A signal that is ignored stays ignored: that is what nohup asks for. Python can set handlers in the main thread
    alone; in any other the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise InstallInterruptedError(signum)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    heeded = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in heeded:
            signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in heeded.items():
            signal.signal(number, handler)


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _end_group(process: subprocess.Popen[str]) -> None:
    """SIGTERM to the child's whole group, then SIGKILL to what is left of it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    kill_group(process)
    process.wait()
