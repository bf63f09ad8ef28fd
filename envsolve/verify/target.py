"""The interpreter that is verified: what it is, and running a script in it."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import sleep
from typing import Protocol, TypeVar

import msgspec

from envsolve.errors import UsageError
from envsolve.machine.tools import HOME_VARIABLES
from envsolve.system.files import is_folder
from envsolve.system.processes import Ended, Isolated, isolated, raise_arrived
from envsolve.verify.report import Explain, unexplained
from envsolve.verify.scripts import scratch_folder

# Processes side by side, in one thread.
#
# One thread, since the kernel ends a child with the *thread* that started it (``PR_SET_PDEATHSIG``), and since signals
# arrive in the main one: leaving a block kills every child that runs in it.


Result = TypeVar("Result")
Given = TypeVar("Given", covariant=True)
_LOOK_SECONDS = 0.01
# A process with a context, cuBLAS and cuDNN takes some GiB of the GPU's memory, so more would crowd small GPUs; and
# importing torch keeps a core busy.
_ON_ONE_GPU = 4


class Started(Protocol[Given]):
    """Something that runs until it has a result."""

    def ran(self) -> Given | None:
        """The result; None until then."""


def places(gpus: int) -> int:
    """How many checks may run at once on this machine, on so many GPUs."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return most_at_once(cores, gpus)


def most_at_once(cores: int, gpus: int) -> int:
    """Half of the cores, because a check's own threads and children use some too, but no more than the GPUs allow."""
    return max(1, min(cores // 2, _ON_ONE_GPU * max(1, gpus)))


def wait(ran: Callable[[], Result | None]) -> Result:
    """Wait for a result.

    Raises:
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    while (result := ran()) is None:
        raise_arrived()
        sleep(_LOOK_SECONDS)
    return result


def run_together(
    starts: Sequence[Callable[[], contextlib.AbstractContextManager[Started[Result]]]], at_once: int
) -> Iterator[tuple[int, Result]]:
    """Run some at a time, started in their order.

    Yields:
        The place in ``starts`` and the result, in the order in which they end.

    Raises:
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    waiting = list(enumerate(starts))[::-1]
    running: dict[int, tuple[Started[Result], contextlib.ExitStack]] = {}
    with contextlib.ExitStack() as everything:
        while waiting or running:
            raise_arrived()
            while waiting and len(running) < at_once:
                number, start = waiting.pop()
                own = everything.enter_context(contextlib.ExitStack())
                running[number] = own.enter_context(start()), own
            ended = [(number, result) for number, (job, _) in running.items() if (result := job.ran()) is not None]
            for number, result in ended:
                running.pop(number)[1].close()
                yield number, result
            if not ended:
                sleep(_LOOK_SECONDS)


OLDEST = (3, 8)
_SAY_VERSION = Path(__file__).with_name("say_version.py")
_PROBE_SECONDS = 30.0
_RESULT_BYTES = 1 << 20
_WHICH = "Name the Python of the environment to verify."
_SLOW = "Try again, with a larger --time-limit if the disk is slow, or name another Python."
#: These may keep any Python from starting.
_MEDDLING = ("PYTHONHOME", "PYTHONPATH", "LD_PRELOAD")
#: What a path in these leads to depends on the directory that a program is started in; an empty one is that directory.
_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
_PATHS = (*HOME_VARIABLES, "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


@dataclass(frozen=True, slots=True)
class Ran:
    """A script that ran.

    Attributes:
        ended: How its process ended.
        result: What it left as its result, unread; None if that is nothing.
        token: A secret of this run, which its results contain.
        command: What was started.
    """

    ended: Ended
    result: bytes | None
    token: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """A script that was started; its result must be read before the block that started it ends."""

    child: Isolated
    place: Path
    token: str
    command: tuple[str, ...]

    def ran(self) -> Ran | None:
        """Its result, once it has ended; None while it runs."""
        ended = self.child.ended()
        return None if ended is None else Ran(ended, _content(self.place), self.token, self.command)


@dataclass(frozen=True, slots=True)
class Target:
    """The interpreter to verify and how to run it; made by :func:`find_target`.

    Attributes:
        python: Absolute path.
        time_limit: Seconds for each script.
        environment: Variables to set beside those already set.
        versions: What is installed, version by project name, as the interpreter itself sees it.
        explain: Finds the root cause of a failure in its text.
        compiled: Whether torch has byte code, which Python otherwise makes anew in each process.
        byte_code: A directory for byte code that the checks of a run share; None if torch has its own.
    """

    python: Path
    time_limit: float
    environment: Mapping[str, str]
    versions: Mapping[str, str] = field(default_factory=dict)
    explain: Explain = unexplained
    compiled: bool = True
    byte_code: Path | None = None

    @contextlib.contextmanager
    def sharing_byte_code(self) -> Iterator[Target]:
        """Within the block, compile the sources of torch once if it has no byte code.

        In an environment that cannot be written to, importing torch took 3.5 to 5 s instead of 1.4 s in each process.
        """
        if self.compiled:
            yield self
            return
        with scratch_folder() as place:
            yield replace(self, byte_code=place)

    def start(self, script: Path, *arguments: str) -> contextlib.AbstractContextManager[Job]:
        """Start a script, which is gone with its whole process group when the block is left.

        Raises:
            UsageError: The interpreter cannot be started.
        """
        return self._start((str(self.python), "-X", "faulthandler", str(script), *arguments), self.time_limit)

    def run(self, script: Path, *arguments: str) -> Ran:
        """Run a script to its end.

        Raises:
            UsageError: The interpreter cannot be started.
        """
        with self.start(script, *arguments) as job:
            return wait(job.ran)

    @contextlib.contextmanager
    def _start(self, command: tuple[str, ...], time_limit: float) -> Iterator[Job]:
        token = secrets.token_hex(16)
        # One scratch directory a script, for everything it writes: no cache of an earlier run can make a check pass.
        with scratch_folder() as scratch, contextlib.ExitStack() as stack:
            place = scratch / "result.json"
            # To go on at a prompt is no program's way to end, and ends with another exit code.
            own = {"ENVSOLVE_RESULT": str(place), "ENVSOLVE_TOKEN": token, "PYTHONINSPECT": ""}
            folders = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(scratch))
            if self.byte_code:
                own |= {"PYTHONPYCACHEPREFIX": str(self.byte_code), "PYTHONDONTWRITEBYTECODE": ""}
            environment = {**from_here({**os.environ, **self.environment}), **own, **folders}
            try:
                child = isolated(command, environ=environment, directory=scratch, time_limit=time_limit)
                job = Job(stack.enter_context(child), place, token, command)
            except OSError as error:
                raise UsageError(
                    f"{self.python} cannot be run: {error.strerror}", hint="Is it a Python for this machine?"
                ) from error
            yield job

    def probed(self) -> Target:
        """Make sure that it is a Python that can run the checks, and note what is installed in it.

        Raises:
            UsageError: It is not a Python, too old, or does not answer.
        """
        limit = min(self.time_limit, _PROBE_SECONDS)
        with self._start((str(self.python), str(_SAY_VERSION)), limit) as job:
            ran = wait(job.ran)
        answer = _answer(ran)
        if answer is not None and answer.version >= OLDEST:
            python = ".".join(map(str, answer.version))
            return replace(self, versions={"python": python, **answer.packages}, compiled=answer.compiled)
        hint = _WHICH
        if answer is not None:
            why = f"it is Python {'.'.join(map(str, answer.version))}"
        elif ran.ended.returncode is None:
            why, hint = f"it did not print its version within {limit:g} s", _SLOW
        else:
            lines = ran.ended.stderr.strip().splitlines()
            last = [line for line in lines if line.startswith("Fatal Python error")][:1] or lines[-1:]
            around = {**os.environ, **self.environment}
            settings = [f"{name} is set to {around[name]}" for name in _MEDDLING if around.get(name)]
            why = "; ".join(["it did not print its version", *last, *settings])
        raise UsageError(f"{self.python} is not a Python {OLDEST[0]}.{OLDEST[1]} or newer: {why}", hint=hint)


def find_target(python: str | os.PathLike[str], time_limit: float, environment: Mapping[str, str] | None) -> Target:
    """The target of an interpreter's path, which has been started once.

    Raises:
        UsageError: The Python does not exist, or the time limit is not positive.
    """
    if not isinstance(time_limit, (int, float)) or not math.isfinite(time_limit) or time_limit <= 0:
        raise UsageError(f"the time limit is not a positive number of seconds: {time_limit}", hint="120 is usual")
    found = shutil.which(python)
    if found is None:
        hint = "--python takes the interpreter itself, --prefix the directory." if is_folder(Path(python)) else _WHICH
        raise UsageError(f"{os.fspath(python)} is not an executable", hint=hint)
    # Absolute, links kept: a virtual environment is known by its link.
    return Target(Path(found).absolute(), time_limit, environment or {}).probed()


def from_here(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Variables with their relative paths as they lead from this directory: a check runs in another."""
    try:
        here = Path.cwd()
    except OSError:  # The directory is gone, and with it all that was relative to it.
        return environment
    lists = {
        name: os.pathsep.join(str(here / path) for path in value.split(os.pathsep))
        for name in _LISTS
        if (value := environment.get(name))
    }
    # A bare name may also be one that is searched for along PATH.
    paths = {
        name: str(path) for name in _PATHS if (value := environment.get(name)) and os.path.lexists(path := here / value)
    }
    return {**environment, **lists, **paths}


class _Answer(msgspec.Struct):
    token: str
    version: tuple[int, int, int]
    packages: Mapping[str, str] = {}
    compiled: bool = True


def _answer(ran: Ran) -> _Answer | None:
    try:
        answer = msgspec.json.decode(ran.result or b"", type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return answer if answer.token == ran.token else None


def _content(place: Path) -> bytes | None:
    """The file's bytes; only a regular file can be a result, a pipe would be waited for without end."""
    try:
        if not place.is_file():
            return None
        with place.open("rb") as file:
            return file.read(_RESULT_BYTES)
    except OSError:
        return None
