from __future__ import annotations

import io
import os
import pty

from envsolve.install.errors import Progress, Step, shown_on


def tell(progress: Progress) -> None:
    progress(Step("packages", "installing 2 packages"))
    progress(Step("output", "Downloading torch"))
    progress(Step("done", "finished"))


def test_plain_lines_off_a_terminal() -> None:
    stream = io.StringIO()
    with shown_on(stream) as progress:
        tell(progress)
    assert stream.getvalue() == "installing 2 packages\nfinished\n"


def test_every_line_when_verbose() -> None:
    stream = io.StringIO()
    with shown_on(stream, verbose=True) as progress:
        tell(progress)
    assert stream.getvalue() == "installing 2 packages\nDownloading torch\nfinished\n"


def test_one_changing_line_on_a_terminal() -> None:
    master, slave = pty.openpty()
    with open(slave, "w") as terminal, shown_on(terminal) as progress:  # noqa: PTH123  (a descriptor, not a path)
        tell(progress)
    shown = b""
    while not shown.endswith(b"\n"):  # what was written in three pieces may arrive in as many
        shown += os.read(master, 4096)
    os.close(master)
    erase = "\r\x1b[2K"
    assert shown.decode() == f"{erase}installing 2 packages{erase}Downloading torch{erase}finished\r\n"


def test_a_stream_that_is_gone_ends_nothing() -> None:
    closed = io.StringIO()
    closed.close()
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as broken:
        for stream in (None, closed, broken):
            with shown_on(stream) as progress:
                tell(progress)
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)  # so that closing it can write what is left
