"""Progress of an install: a stream of steps, and two ways to show it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TextIO

Stage = Literal["wait", "prepare", "packages", "output", "verify", "swap", "done"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is happening now.

    Attributes:
        stage: Where the install stands; ``output`` is a raw line of the package manager.
        text: One line for a person.
    """

    stage: Stage
    text: str


Progress = Callable[[Step], None]


def silent(step: Step) -> None:
    """Show nothing."""


@contextmanager
def shown_on(stream: TextIO, *, verbose: bool = False) -> Iterator[Progress]:
    """Show steps on ``stream``: one line that changes on a terminal, a line per stage elsewhere.

    Args:
        stream: Usually ``sys.stderr``.
        verbose: Show every line of the package manager, each on its own line.
    """
    if verbose or not stream.isatty():

        def print_line(step: Step) -> None:
            if verbose or step.stage != "output":
                print(step.text, file=stream, flush=True)

        yield print_line
        return

    def update_line(step: Step) -> None:
        width = shutil.get_terminal_size().columns - 1
        end = "\n" if step.stage == "done" else ""
        print(f"\r\x1b[2K{step.text[:width]}", end=end, file=stream, flush=True)

    try:
        yield update_line
    except BaseException:
        print("\r\x1b[2K", end="", file=stream, flush=True)
        raise
