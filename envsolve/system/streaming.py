"""Child processes whose output is passed on line by line while they run."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from envsolve.system.processes import ESCAPES, Ended, following_parent, kill_group

_KEPT_LINES = 200
_GRACE_SECONDS = 3.0
_READ_BYTES = 64 * 1024
# Wide enough that pip and uv break no message, and tall enough that uv draws a bar for every file on its way.
_ROWS, _COLUMNS = 200, 400
# A carriage return at the end of what was read so far may be the first half of a line end.
_LINE_END = re.compile(r"(\r*\n|\r(?=[^\r\n]))")


def stream(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    on_line: Callable[[str], None],
    on_redraw: Callable[[str], None] | None = None,
) -> Ended:
    """Run ``command`` to its end and pass on each line that it prints, stdout and stderr together.

    Any exception, including Ctrl-C, first ends the child's whole process group. If this process is killed, Linux kills
    the child too, but not what the child has started.

    Args:
        on_redraw: Called with each line that the child overwrites later, such as a progress bar. If it is given, the
            child writes to a pseudo-terminal, because pip and uv show how far a download is only on a terminal.

    Raises:
        OSError: The program cannot be started.
    """
    started = time.monotonic()
    terminal = _pseudo_terminal() if on_redraw is not None else None
    reader, writer = terminal or os.pipe()
    try:
        try:
            process = subprocess.Popen(
                command,
                env={**environ, **({"TERM": "xterm"} if terminal else {})},
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                start_new_session=True,
                preexec_fn=following_parent(),
            )
        finally:
            os.close(writer)
        kept: deque[str] = deque(maxlen=_KEPT_LINES)
        try:
            for text, is_drawn_over in _lines(reader):
                if terminal is not None and is_drawn_over and on_redraw is not None:
                    on_redraw(text)
                    continue
                kept.append(text.rstrip())
                on_line(kept[-1])
            return Ended(process.wait(), stderr="\n".join(kept), seconds=time.monotonic() - started)
        except BaseException:
            _end_group(process)
            raise
    finally:
        os.close(reader)


def _pseudo_terminal() -> tuple[int, int] | None:
    """The two ends of a new pseudo-terminal; None if the system has none to give."""
    if sys.platform == "win32":
        return None
    import fcntl
    import termios

    try:
        reader, writer = os.openpty()
    except OSError:
        return None
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    return reader, writer


def _lines(descriptor: int) -> Iterator[tuple[str, bool]]:
    """Each line that a child prints, without escape sequences, and whether it ends with a carriage return only."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while chunk := _read(descriptor):
        *parts, rest = _LINE_END.split(rest + decoder.decode(chunk))
        for text, end in zip(parts[::2], parts[1::2], strict=True):
            yield ESCAPES.sub("", text), end == "\r"
    if rest := rest.rstrip("\r"):
        yield ESCAPES.sub("", rest), False


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError:  # EIO: Linux reports the end of a pseudo-terminal as an error.
        return b""


def _end_group(process: subprocess.Popen[Any]) -> None:
    """SIGTERM to the child's whole group, then SIGKILL to what is left of it."""
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    kill_group(process)
    process.wait()
