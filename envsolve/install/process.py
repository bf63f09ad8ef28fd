"""Running a child so that it never outlives the install, and turning signals into exceptions."""

from __future__ import annotations

import contextlib
import functools
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
from envsolve.system.processes import die_with_parent, kill_group

_KEPT_LINES = 200
_GRACE_SECONDS = 3.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
) -> Ended:
    """Run ``command`` to its end, handing over each line of output as it comes.

    The child leads its own process group, and any exception here (Ctrl-C included) ends that whole group first. Where
    this process is killed outright, Linux kills the child too; what the child had started is left to
    :mod:`envsolve.install.staging`.
    """
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=functools.partial(_die_with, os.getpid()),
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
    """Within the block, SIGINT, SIGTERM and SIGHUP raise :class:`InstallInterruptedError`, the first of them alone.

    Those that come after it are ignored until the block ends: a second Ctrl-C must not stop the cleaning up. A signal
    that is ignored from the start stays ignored: that is what nohup asks for. Python can set handlers in the main
    thread alone; in any other the block changes nothing.
    """

    def interrupt(signum: int, frame: FrameType | None) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        raise InstallInterruptedError(signum)

    with _handled_by(interrupt):
        yield


@contextlib.contextmanager
def signals_postponed() -> Iterator[None]:
    """Hold SIGINT, SIGTERM and SIGHUP back until the block has ended, for what must not be left half done."""
    came: list[int] = []
    with _handled_by(lambda signum, frame: came.append(signum)):
        yield
    if came:
        signal.raise_signal(came[0])


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _ENDING}
    heeded = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    if threading.current_thread() is not threading.main_thread():
        heeded = {}
    try:
        for number in heeded:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in heeded.items():
            signal.signal(number, old)


def _die_with(parent: int) -> None:
    die_with_parent()
    if sys.platform == "linux" and os.getppid() != parent:  # it was killed before this child had asked to follow it
        os._exit(1)


def _end_group(process: subprocess.Popen[str]) -> None:
    """SIGTERM to the child's whole group, then SIGKILL to what is left of it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    kill_group(process)
    process.wait()
