"""Child processes that end when they must, with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

TIME_LIMIT = 5.0
"""Seconds that a program that was asked something may take before it is killed and counts as silent."""


def ask(command: Sequence[str], environ: Mapping[str, str], *, limit: float = TIME_LIMIT) -> str | None:
    """Run ``command`` and return what it printed (stdout, then stderr); its failure is an answer, never an exception.

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
            kill_group(child)
            return None
        except BaseException:  # Ctrl-C: the terminal's signal does not reach another session
            kill_group(child)
            raise
    return (out + err).strip() or None if child.returncode == 0 else None


def kill_group(leader: subprocess.Popen[Any]) -> None:
    """Kill a child that was started with ``start_new_session``, and whatever is left of its process group."""
    if sys.platform == "win32":  # No process groups to kill: the child alone.
        leader.kill()
        return
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # The child is reaped and left nobody behind.
    except PermissionError:
        leader.kill()  # A member changed its user; the child itself is still ours.
