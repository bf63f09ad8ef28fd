"""Whole processes, timed in turns: A B C, A B C, ... so that what else the machine does falls on all alike."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_LIMIT = 300.0  # seconds that one process may take
_PATIENCE = 2  # failures after which a tool is out; an index may fail once

State = Literal["start", "cold", "warm", "offline", "impossible", "verdicts"]
"""What a tool still has from before.

``cold``: nothing. ``warm``: what it keeps of the index, for a question that it was not asked before. The others are
warm, too.
"""


@dataclass(frozen=True)
class Tool:
    """One tool on one workload.

    Attributes:
        command: Its command line.
        environment: Variables that it gets besides.
        cache: The folder of its cache, all of it.
        good: The exit code of an answer.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    cache: Path | None = None
    good: int = 0

    def forgets(self, state: State) -> Path | None:
        """The folder that is emptied before each turn."""
        return self.cache if state == "cold" else None


@dataclass(frozen=True)
class Sample:
    """One turn: seconds of the clock and of the processors, MiB at the peak, 0 for any answer, what was printed."""

    wall: float
    cpu: float
    memory: float
    code: int
    output: str


@dataclass(frozen=True)
class Figure:
    """One tool on one workload, over all turns that it answered in.

    Attributes:
        wall: Seconds of each turn; ``cpu`` likewise.
        memory: MiB at the peak of each turn.
        code: 0, or the exit code of a tool that failed too often to be timed.
        output: What the last turn printed.
    """

    tool: str
    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    memory: tuple[float, ...]
    code: int
    output: str


def sample(tool: Tool) -> Sample:
    """Run a tool once."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        start = time.perf_counter()
        process = subprocess.Popen(
            list(tool.command), env=environment | dict(tool.environment), stdout=said, stderr=complained
        )
        overdue = threading.Timer(_LIMIT, process.kill)
        overdue.start()
        # wait4 accounts for this very child; RUSAGE_CHILDREN would keep the largest of all children so far.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        overdue.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        complained.seek(0)
        failed = b"" if process.returncode == tool.good else complained.read()
        output = (failed + said.read()).decode("utf-8", "replace")
    code = 0 if process.returncode == tool.good else process.returncode or 1
    return Sample(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, code, output)


def in_turns(tools: Mapping[str, Tool], turns: int, state: State) -> list[Figure]:
    """Time tools on the same question.

    Args:
        tools: By name.
        turns: How often each runs; unless it starts from nothing, once more before that, which fills its cache.
        state: What each turn finds.
    """
    taken: dict[str, list[Sample]] = {name: [] for name in tools}
    failed: dict[str, list[Sample]] = {name: [] for name in tools}
    for turn in range(turns if state == "cold" else turns + 1):
        for name, tool in tools.items():
            if len(failed[name]) >= _PATIENCE:
                continue
            if (folder := tool.forgets(state)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
            one = sample(tool)
            if one.code:  # the time of failing says nothing
                failed[name].append(one)
            elif state == "cold" or turn:
                taken[name].append(one)
    return [_figure(name, taken[name], failed[name]) for name in tools]


def _figure(name: str, taken: Sequence[Sample], failed: Sequence[Sample]) -> Figure:
    out = len(failed) >= _PATIENCE or not taken
    return Figure(
        name,
        tuple(round(one.wall, 4) for one in taken),
        tuple(round(one.cpu, 4) for one in taken),
        tuple(round(one.memory, 1) for one in taken),
        failed[-1].code if out else 0,
        failed[-1].output if out else taken[-1].output,
    )
