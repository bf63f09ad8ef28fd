"""Time limits that pass at a moment instead of after a while.

A busy computer starts a Python in seconds, an idle one in milliseconds: no limit is short here and enough there.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from envsolve.system import processes

#: The limit for a check that hangs: nothing takes so long, and the clock jumps past it.
LIMIT = 900.0


def pass_limit_once(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every time limit of a child process pass as soon as a file is there, which the child writes as it hangs."""

    def monotonic() -> float:
        return time.monotonic() + (2 * LIMIT if there.exists() else 0)

    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=monotonic))
