"""Progress of long work: what is done now and how far it is.

Work reports with :func:`phase`, :func:`advance` and :func:`received`, from any thread. The command line shows the
reports with :func:`shown`; a program that uses the API sees nothing. The state belongs to the process, as a terminal
does: worker threads do not see context variables of the thread that started them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from envsolve.system.limits import printable

_DELAY = 1.0  # seconds: shorter work shows nothing
_REDRAW = 0.2  # seconds between two states of the line on a terminal
_PERIODS = (10.0, 30.0)  # seconds to the first plain line, and between the others, without a terminal


@dataclass
class _Status:
    """The present step; ``done`` and ``total`` count items, or bytes."""

    text: str = ""
    total: int | None = None
    in_bytes: bool = False
    done: int = 0
    note: str = ""
    files: int = 0
    size: int = 0
    began: float = field(default_factory=time.monotonic)


_lock = threading.RLock()
_status = _Status()
_display: _Display | None = None


def phase(text: str, total: int | None = None, *, in_bytes: bool = False) -> None:
    """Begin a phase of the work.

    Args:
        text: What is done, for a person: ``choosing versions``; empty at the end of the work.
        total: How many items, or bytes, there are; None if that is not known.
        in_bytes: Whether ``total`` counts bytes: the rate and the time left are shown too.
    """
    global _status
    with _lock:
        _status = _Status(text, total, in_bytes)
        if _display is not None:
            _display.begin() if text else _display.clear()


def advance(count: int = 1, note: str | None = None) -> None:
    """Add finished items, or bytes, to the current phase.

    Args:
        note: What was finished last, or is done now: ``torch-matmul passed``.
    """
    with _lock:
        _status.done += count
        if note is not None:
            _status.note = note


def received(size: int) -> None:
    """Add a file that was read from the network, of ``size`` bytes."""
    with _lock:
        _status.files += 1
        _status.size += size


def is_live() -> bool:
    """Whether a changing line on a terminal shows the phases."""
    return _display is not None and _display.live


def clear() -> None:
    """Remove the line from the terminal before something else is printed there."""
    with _lock:
        if _display is not None:
            _display.clear()


def say(text: str) -> None:
    """Print a line that stays, if progress is shown."""
    with _lock:
        if _display is not None:
            _display.say(text)


@contextmanager
def shown(stream: TextIO | None) -> Iterator[None]:
    """Show the progress of the work in the block: on the last line of a terminal, otherwise a line from time to time.

    A stream that nobody reads any more ends the showing and never the work.

    Args:
        stream: Usually ``sys.stderr``; None shows nothing.
    """
    global _display
    if stream is None or stream.closed:
        yield
        return
    display = _display = _Display(stream)
    try:
        yield
    finally:
        display.end()
        phase("")
        _display = None


class _Display:
    """Writes the state of the work from a thread of its own, which starts with the first phase."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._ended = stream, threading.Event()
        self.live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = 0  # rows on the terminal
        self._lost = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self.clear()

    def say(self, text: str) -> None:
        self.clear()
        self._write(f"{printable(text)}\n")

    def clear(self) -> None:
        if self._drawn:
            self._write(self._erasing())
            self._drawn = 0

    def _run(self) -> None:
        if self.live:
            wait = _DELAY
            while not self._ended.wait(wait):
                wait = _REDRAW
                with _lock:
                    if _status.text and not self._ended.is_set():
                        rows = _rows(printable(_line(_status)), printable(_status.note), _width(self._stream) - 1)
                        self._write(self._erasing() + "\n".join(rows))
                        self._drawn = len(rows)
        else:
            first, wait = _PERIODS
            while not self._ended.wait(first):
                first = wait
                with _lock:
                    if _status.text and not self._ended.is_set():
                        self._write(f"{printable(_line(_status))}\n")

    def _erasing(self) -> str:
        """The command that erases the rows that are drawn, from the last to the first."""
        return "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (self._drawn - 1)

    def _write(self, text: str) -> None:
        try:
            if not self._lost:
                # The command line's stream escapes what it does not get as a command.
                getattr(self._stream, "command", self._stream.write)(text)
                self._stream.flush()
        except (OSError, ValueError):  # a broken pipe, a full disk behind it; a closed file
            self._lost = True
            self._ended.set()


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _rows(line: str, note: str, width: int) -> list[str]:
    """The line as one row; its note gets a row of its own if both do not fit."""
    if note and len(line) > width:
        return [line.removesuffix(f", {note}")[:width], f"  {note}"[:width]]
    return [line[:width]]


def _line(status: _Status) -> str:
    """``installing 38 packages: 1.2 GB of 3.4 GB, 84 MB/s, 26 s left, torch``."""
    seconds = time.monotonic() - status.began
    parts = []
    is_timed = False
    # Nothing has come yet while the package manager reads metadata, and nothing comes if its cache has the files.
    if status.in_bytes and status.total and status.done:
        parts.append(f"{format_size(status.done)} of {format_size(status.total)}")
        if seconds > _DELAY:
            rate = status.done / seconds
            left = max(status.total - status.done, 0) / rate
            parts += [f"{format_size(int(rate))}/s", f"{format_time(left)} left"]
            is_timed = True
    elif status.total and not status.in_bytes:
        parts.append(f"{status.done} of {status.total}")
    if status.files:
        parts.append(f"{status.files} file{'s' * (status.files != 1)} ({format_size(status.size)}) read")
    # One time is enough: beside the time that is left, the time that has passed could be taken for it.
    parts += [] if is_timed else [format_time(seconds)]
    parts += [status.note] if status.note else []
    return f"{status.text}: {', '.join(parts)}"


def format_size(size: int) -> str:
    """``412 kB``, ``34 MB``, ``1.2 GB``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            number = size / scale
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{size} bytes"


def format_time(seconds: float) -> str:
    """``26 s``, ``14 min``, ``2 h 5 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
