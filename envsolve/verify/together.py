"""Processes side by side, in one thread.

One thread, since the kernel ends a child with the *thread* that started it (``PR_SET_PDEATHSIG``), and since Ctrl-C and
signals arrive in the main one: leaving a block kills every child that runs in it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from time import sleep
from typing import Protocol, TypeVar

from envsolve.processes import raise_arrived

Result = TypeVar("Result")
Given = TypeVar("Given", covariant=True)
_LOOK_SECONDS = 0.01
# A process with a context, cuBLAS and cuDNN takes some GiB of the GPU's memory, so more would crowd small cards; and
# importing torch keeps a core busy.
_ON_ONE_GPU = 4


class Started(Protocol[Given]):
    """Something that runs until it has a result."""

    def ran(self) -> Given | None:
        """The result; None until then."""


def places(gpus: int) -> int:
    """How many checks may run at once on this machine, on so many GPUs."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return most_at_once(cores, gpus)


def most_at_once(cores: int, gpus: int) -> int:
    """Half of the cores, as a check's own threads and children want some too, and no more than the GPUs bear."""
    return max(1, min(cores // 2, _ON_ONE_GPU * max(1, gpus)))


def wait(ran: Callable[[], Result | None]) -> Result:
    """Wait for a result.

    Raises:
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    while (result := ran()) is None:
        raise_arrived()
        sleep(_LOOK_SECONDS)
    return result


def run_together(
    starts: Sequence[Callable[[], contextlib.AbstractContextManager[Started[Result]]]], at_once: int
) -> Iterator[tuple[int, Result]]:
    """Run some at a time, started in their order.

    Yields:
        The place in ``starts`` and the result, in the order in which they end.

    Raises:
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    waiting = list(enumerate(starts))[::-1]
    running: dict[int, tuple[Started[Result], contextlib.ExitStack]] = {}
    with contextlib.ExitStack() as everything:
        while waiting or running:
            raise_arrived()
            while waiting and len(running) < at_once:
                number, start = waiting.pop()
                own = everything.enter_context(contextlib.ExitStack())
                running[number] = own.enter_context(start()), own
            ended = [(number, result) for number, (job, _) in running.items() if (result := job.ran()) is not None]
            for number, result in ended:
                running.pop(number)[1].close()
                yield number, result
            if not ended:
                sleep(_LOOK_SECONDS)
