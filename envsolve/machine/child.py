"""Asking other programs: child processes with a time limit whose failure is an answer, never an exception."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

TIME_LIMIT = 5.0
"""Seconds that a child process may take before it is killed and counts as silent."""


def ask(command: Sequence[str], environ: Mapping[str, str], *, limit: float = TIME_LIMIT) -> str | None:
    """Run ``command`` and return what it printed (stdout, then stderr).

    The child leads its own session, so that a time-out also ends what it started itself (a version manager's shim is a
    shell that starts the real program): a surviving grandchild would hold the pipe open and block the caller.

    Returns:
        The text, or None where the program is missing, fails, prints no text, or takes longer than ``limit`` seconds.
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environ, "LC_ALL": "C"},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    with child:
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _kill_session(child)
            return None
    return (out + err).strip() or None if child.returncode == 0 else None


def _kill_session(child: subprocess.Popen[str]) -> None:
    if os.name == "posix":
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
    else:
        child.kill()
