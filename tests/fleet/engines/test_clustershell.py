"""What is left on nodes after ClusterShell's connections have ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.profiles import profile

pytest.importorskip("ClusterShell")


def command(directory: Path, does: str, nodes: str) -> list[str]:
    """A probe of nodes that are processes of this computer."""
    python = directory / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    words = ["fleet", "probe", "--fleet", str(directory / "fleet"), "--ssh", nodes, "--worker", "exec"]
    return [sys.executable, "-m", "envsolve", *words, "--python", str(python)]


def start(words: list[str], said: Path) -> subprocess.Popen[bytes]:
    """Start a command that heeds Ctrl-C, which jobs in the background of a shell ignore, and their children."""
    with said.open("wb") as file:
        return subprocess.Popen(words, stderr=file, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def processes(text: str) -> int:
    """The number of processes with a text in their command line."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += text.encode() in path.read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_runs_on_after_the_command_has_ended(tmp_path: Path, number: signal.Signals) -> None:
    # Of many nodes most of the time goes to forks, in which Python swallows what a signal raises.
    does = f"cat > /dev/null; (sleep 600; : {tmp_path}) & wait"
    running = start(command(tmp_path, does, "gpu[1-40]"), tmp_path / "said")
    wait_for(lambda: processes(f"{tmp_path}/python -") >= 3)
    running.send_signal(number)
    assert running.wait(timeout=120) in (130, 143, -9), (tmp_path / "said").read_text()
    wait_for(lambda: processes(str(tmp_path)) == 0)


def test_a_command_that_ignores_the_end_is_killed(tmp_path: Path) -> None:
    does = "cat > /dev/null; trap '' TERM; while :; do sleep 0.2; done"
    running = start(command(tmp_path, does, "gpu1"), tmp_path / "said")
    wait_for(lambda: processes(f"{tmp_path}/python -") >= 1)
    running.send_signal(signal.SIGINT)
    running.wait(timeout=120)
    wait_for(lambda: processes(str(tmp_path)) == 0)


def test_no_node_loses_its_input(tmp_path: Path) -> None:
    (tmp_path / "profile").write_bytes(profile("x", "H100"))
    # A probe that is cut would not end with this line.
    does = f"tail -n 1 | grep -q sort_keys && cat {tmp_path}/profile"
    done = subprocess.run(command(tmp_path, does, "gpu[1-60]"), capture_output=True, text=True)
    assert done.stdout.startswith("60 of 60 nodes answered"), done.stdout + done.stderr
