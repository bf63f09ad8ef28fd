from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from envsolve.processes import ask, kill_group

ENVIRON = {"PATH": "/usr/bin:/bin"}


def test_what_a_program_prints() -> None:
    assert ask(["sh", "-c", "echo out; echo err >&2"], ENVIRON) == "out\nerr"


def test_a_slow_child_and_its_children_are_ended() -> None:
    start = time.monotonic()
    assert ask(["sh", "-c", "sleep 30 & sleep 30"], ENVIRON, limit=0.3) is None
    assert time.monotonic() - start < 5


def test_what_ends_the_caller_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ask(["sh", "-c", "sleep 30 & sleep 30"], ENVIRON)
    assert time.monotonic() - start < 5


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
