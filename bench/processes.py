"""Whole processes, timed in turns: A B C, A B C, ... so that what else the machine does falls on all alike."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LIMIT = 300.0  # seconds that one process may take


@dataclass(frozen=True)
class Tool:
    """One tool on one workload.

    Attributes:
        command: Its command line.
        environment: Variables that it gets besides.
        caches: Folders that are its cache: emptied before each cold turn.
        most: Turns at most, for a tool that takes minutes.
        good: The exit code of an answer.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    caches: Sequence[Path] = ()
    most: int = 1000
    good: int = 0


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
    """One tool on one workload, over all turns.

    Attributes:
        wall: Seconds of each turn; ``cpu`` likewise.
        memory: MiB at the peak of each turn.
        code: Exit code; that of a turn that failed where one did.
        output: What the last turn printed.
    """

    tool: str
    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    memory: tuple[float, ...]
    code: int
    output: str

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.wall)


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
        output = (said if process.returncode == tool.good else complained).read().decode("utf-8", "replace")
    code = 0 if process.returncode == tool.good else process.returncode or 1
    return Sample(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, code, output)


def in_turns(tools: Mapping[str, Tool], turns: int, *, cold: bool = False) -> list[Figure]:
    """Every tool once, then every tool again, ``turns`` times; before that once untimed, unless cold."""
    taken: dict[str, list[Sample]] = {name: [] for name in tools}
    failed = set()
    for turn in range(turns if cold else turns + 1):
        for name, tool in tools.items():
            if name in failed or len(taken[name]) >= tool.most:
                continue
            if cold:
                for cache in tool.caches:
                    shutil.rmtree(cache, ignore_errors=True)
            one = sample(tool)
            if one.code:  # it will fail again, and a time of failing says nothing
                failed.add(name)
            if cold or turn or one.code:
                taken[name].append(one)
    return [_figure(name, samples) for name, samples in taken.items()]


def _figure(name: str, samples: Sequence[Sample]) -> Figure:
    return Figure(
        name,
        tuple(round(one.wall, 4) for one in samples),
        tuple(round(one.cpu, 4) for one in samples),
        tuple(round(one.memory, 1) for one in samples),
        next((one.code for one in samples if one.code), 0),
        samples[-1].output,
    )
