"""Progress on a terminal, without one, and on streams that are gone."""

from __future__ import annotations

import io
import os
import pty
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from envsolve.system import progress

ERASE = "\r\x1b[2K"
LINE = progress._line


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_DELAY", 0.05)
    monkeypatch.setattr(progress, "_REDRAW", 0.02)
    monkeypatch.setattr(progress, "_PERIODS", (0.05, 0.05))
    monkeypatch.setenv("TERM", "xterm")
    # Lines tell the seconds that have passed, and a busy computer takes some for anything.
    monkeypatch.setattr(progress, "_line", lambda status: LINE(replace(status, began=time.monotonic())))


def written_to_terminal(work: Callable[[], None]) -> str:
    master, slave = pty.openpty()
    with open(slave, "w", closefd=False) as terminal, progress.shown(terminal):
        work()
    text = b""
    while select.select([master], [], [], 0.2)[0]:
        text += os.read(master, 1 << 16)
    os.close(slave)
    os.close(master)
    return text.decode()


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def drawn() -> bool:
    return progress._display is not None and progress._display._drawn > 0


def test_short_work_shows_nothing() -> None:
    assert written_to_terminal(lambda: progress.phase("choosing versions")) == ""


def test_one_line_changes_on_a_terminal_and_is_removed() -> None:
    def work() -> None:
        with progress._lock:  # the first line that is drawn has both
            progress.phase("running checks", 21)
            progress.advance(1, "driver: pass")
        wait_until(drawn)
        progress.say("driver works")
        progress.phase("")

    shown = written_to_terminal(work)
    assert shown.startswith(f"{ERASE}running checks: 1 of 21, 0 s, driver: pass")
    assert shown.endswith(f"{ERASE}driver works\r\n")


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    lines: list[str] = []

    def line(status: progress._Status) -> str:
        lines.append(LINE(replace(status, began=time.monotonic())))
        return lines[-1]

    monkeypatch.setattr(progress, "_line", line)

    def work() -> None:
        with progress._lock:
            progress.phase("choosing versions")
            progress.received(2_500_000)
        wait_until(lambda: lines > [])
        progress.phase("")

    shown = written_to_terminal(work)
    assert "\x1b" not in shown
    assert "choosing versions: 1 file (2.5 MB) read, 0 s\r\n" in shown


def test_plain_lines_from_time_to_time_without_a_terminal() -> None:
    stream = io.StringIO()
    with progress.shown(stream):
        progress.phase("choosing versions")
        wait_until(lambda: stream.getvalue().count("\n") > 1)
    assert set(stream.getvalue().splitlines()) == {"choosing versions: 0 s"}


def test_control_characters_are_escaped() -> None:
    stream = io.StringIO()
    with progress.shown(stream):
        progress.say("a\x1b[31mb")
    assert "\x1b" not in stream.getvalue()


def test_bytes_have_a_rate_and_a_time_left() -> None:
    status = progress._Status("installing 2 packages", 3_400_000_000, True, 1_200_000_000, "downloading torch")
    status.began = time.monotonic() - 10
    line = "installing 2 packages: 1.2 GB of 3.4 GB, 120 MB/s, 18 s left, downloading torch"
    assert LINE(status) == line


def test_a_note_that_does_not_fit_gets_a_row_of_its_own() -> None:
    note = "downloading torch (412 MB of 846 MB, 11 s left)"
    line = f"installing 38 packages: 1.2 GB of 3.4 GB, 120 MB/s, 18 s left, {note}"
    assert progress._rows(line, note, 140) == [line]
    assert progress._rows(line, note, 79) == [
        "installing 38 packages: 1.2 GB of 3.4 GB, 120 MB/s, 18 s left",
        "  downloading torch (412 MB of 846 MB, 11 s left)",
    ]
    assert [len(row) for row in progress._rows(line, note, 20)] == [20, 20]


def test_both_rows_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_width", lambda stream: 40)

    def work() -> None:
        with progress._lock:
            progress.phase("installing 38 packages with uv", 38)
            progress.advance(1, "downloading torch")
        wait_until(drawn)
        progress.phase("")

    shown = written_to_terminal(work)
    assert "  downloading torch" in shown
    assert shown.endswith(f"{ERASE}\x1b[1A\x1b[2K")


@pytest.mark.parametrize(
    ("seconds", "text"), [(26.4, "26 s"), (99.4, "99 s"), (840, "14 min"), (3599, "1 h 0 min"), (7500, "2 h 5 min")]
)
def test_times(seconds: float, text: str) -> None:
    assert progress.format_time(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(12, "12 bytes"), (412_000, "412 kB"), (34_000_000, "34 MB"), (1_250_000_000, "1.2 GB")]
)
def test_sizes(size: int, text: str) -> None:
    assert progress.format_size(size) == text


def gone() -> Iterator[object]:
    closed = io.StringIO()
    closed.close()
    yield None
    yield closed


@pytest.mark.parametrize("stream", [*gone()])
def test_a_stream_that_is_gone_ends_nothing(stream: io.StringIO | None) -> None:
    with progress.shown(stream):
        progress.phase("choosing versions")
        progress.say("done")


def test_a_broken_pipe_ends_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as broken:
        with progress.shown(broken):
            progress.say("one")
            progress.say("two")
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)  # so that closing it can write what is left
