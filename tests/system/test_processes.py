from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envsolve.errors import InterruptedBySignalError
from envsolve.system.processes import ask, capture, kill_group, raise_arrived, signals_postponed, signals_raised
from envsolve.system.streaming import stream

ENVIRON = {"PATH": "/usr/bin:/bin"}


def test_what_a_program_prints() -> None:
    assert ask(["sh", "-c", "echo out; echo err >&2"], ENVIRON) == "out\nerr"


def test_a_slow_child_and_its_children_are_ended() -> None:
    start = time.monotonic()
    assert ask(["sh", "-c", "sleep 600 & sleep 600"], ENVIRON, limit=0.3) is None
    assert time.monotonic() - start < 300


def test_what_ends_the_caller_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ask(["sh", "-c", "sleep 600 & sleep 600"], ENVIRON)
    assert time.monotonic() - start < 300


@pytest.mark.parametrize("body", ["exit 3", "echo text; exit 1", "kill -SEGV $$", ":"])
def test_a_failing_child_is_silence(body: str) -> None:
    assert ask(["sh", "-c", body], ENVIRON) is None


def test_a_missing_program_is_silence(tmp_path: Path) -> None:
    assert ask([str(tmp_path / "none")], {}) is None
    (tmp_path / "text").touch()
    assert ask([str(tmp_path / "text")], {}) is None


def test_undecodable_output_is_text() -> None:
    assert ask(["sh", "-c", r"printf 'a\377b'"], ENVIRON) == "a\ufffdb"


def test_a_group_that_has_ended_is_no_error() -> None:
    child = subprocess.Popen(["true"], start_new_session=True)
    child.wait()
    kill_group(child)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
def test_a_signal_whose_exception_python_swallows_is_raised_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finalised:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    swallowed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", swallowed.append)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(InterruptedBySignalError), signals_raised():
            Finalised()
            assert swallowed
            raise_arrived()
        raise_arrived()  # that was then
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_stream_passes_lines_on_and_keeps_the_last() -> None:
    lines: list[str] = []
    ended = stream(["sh", "-c", "echo out; echo err >&2; exit 3"], environ=ENVIRON, on_line=lines.append)
    assert (ended.returncode, ended.stderr, lines) == (3, "out\nerr", ["out", "err"])


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
def test_lines_that_a_child_draws_over_are_passed_on_and_not_kept() -> None:
    lines: list[str] = []
    drawn: list[str] = []
    text = r"begin\n bar 1/2\r\033[2K bar \033[32m2/2\033[0m\r\033[2Kend \303\274\nlast"
    script = f"test -t 1 && test -t 2 && printf '{text}'; exit 3"
    ended = stream(["sh", "-c", script], environ=ENVIRON, on_line=lines.append, on_redraw=drawn.append)
    assert (ended.returncode, ended.stderr) == (3, "begin\nend ü\nlast")
    assert (lines, drawn) == (["begin", "end ü", "last"], [" bar 1/2", " bar 2/2"])


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
def test_a_system_without_pseudo_terminals_has_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError("out of pty devices")

    monkeypatch.setattr(os, "openpty", none_left)
    lines: list[str] = []
    ended = stream(
        ["sh", "-c", "test -t 1 || echo pipe"], environ=ENVIRON, on_line=lines.append, on_redraw=lines.append
    )
    assert (ended.returncode, lines) == (0, ["pipe"])


def test_a_capture_without_end_is_killed() -> None:
    ended = capture(["sh", "-c", "echo text; sleep 600 & sleep 600"], ENVIRON, limit=0.3)
    assert ended.returncode is None
    assert ended.seconds < 5


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
def test_handlers_of_the_caller_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with signals_raised(signal.SIGINT):
            os.kill(os.getpid(), signal.SIGTERM)
        assert came == [signal.SIGTERM]
        with signals_postponed():
            os.kill(os.getpid(), signal.SIGTERM)
            assert len(came) == 1
        assert len(came) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_is_told_whatever_a_library_makes_of_it() -> None:
    with pytest.raises(InterruptedBySignalError) as told, signals_raised(signal.SIGINT):
        try:
            signal.raise_signal(signal.SIGTERM)
        except Exception as error:
            raise TypeError("unsupported callable") from error
    assert told.value.exit_code == 128 + signal.SIGTERM
    with pytest.raises(TypeError), signals_raised():
        raise TypeError("its own")
