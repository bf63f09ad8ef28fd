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
def shown_on(stream: TextIO | None, *, verbose: bool = False) -> Iterator[Progress]:
    """Show steps on ``stream``: one line that changes on a terminal, a line per stage elsewhere.

    A stream that nobody reads any more, or that is closed, ends the showing and never the install.

    Args:
        stream: Usually ``sys.stderr``; None, as Python has it where there is no such stream, shows nothing.
        verbose: Show every line of the package manager, each on its own line.
    """
    write = _writer(stream)
    if verbose or stream is None or stream.closed or not stream.isatty():

        def print_line(step: Step) -> None:
            if verbose or step.stage != "output":
                write(f"{step.text}\n")

        yield print_line
        return

    def update_line(step: Step) -> None:
        width = shutil.get_terminal_size().columns - 1
        write(f"\r\x1b[2K{step.text[:width]}" + ("\n" if step.stage == "done" else ""))

    try:
        yield update_line
    except BaseException:
        write("\r\x1b[2K")
        raise


def _writer(stream: TextIO | None) -> Callable[[str], None]:
    """Writes to the stream for as long as it takes anything."""
    lost = stream is None

    def write(text: str) -> None:
        nonlocal lost
        if stream is None or lost:
            return
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):  # a broken pipe, a full disk behind it; a closed file
            lost = True

    return write
