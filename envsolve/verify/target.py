"""The interpreter that is verified: what it is, and running a script in it."""

from __future__ import annotations

import math
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from envsolve.errors import UsageError
from envsolve.verify.child import Ended, run_child
from envsolve.verify.scratch import scratch_folder

OLDEST = (3, 8)
_SAY_VERSION = Path(__file__).with_name("say_version.py")
_PROBE_SECONDS = 30.0
_RESULT_BYTES = 1 << 20
_WHICH = "Name the Python of the environment to verify."


@dataclass(frozen=True, slots=True)
class Ran:
    """A script that ran.

    Attributes:
        ended: How its process ended.
        result: What it left as its result, unread; None where that is nothing.
        token: What only a result of this run can hold.
        command: What was started.
    """

    ended: Ended
    result: bytes | None
    token: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """The interpreter to verify and how to run it; made by :func:`find_target`.

    Attributes:
        python: Absolute path.
        time_limit: Seconds for each script.
        environment: Variables to set beside those already set.
    """

    python: Path
    time_limit: float
    environment: Mapping[str, str]

    def run(self, script: Path, *arguments: str) -> Ran:
        """Run a script to its end.

        Raises:
            UsageError: The interpreter cannot be started.
        """
        command = (str(self.python), "-X", "faulthandler", str(script), *arguments)
        return self._run(command, self.time_limit)

    def _run(self, command: tuple[str, ...], time_limit: float) -> Ran:
        token = secrets.token_hex(16)
        # One scratch folder a script, for everything it writes: no cache of an earlier run can make a check pass.
        with scratch_folder() as scratch:
            place = scratch / "result.json"
            own = {"ENVSOLVE_RESULT": str(place), "ENVSOLVE_TOKEN": token}
            folders = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(scratch))
            try:
                ended = run_child(
                    command,
                    environment={**os.environ, **self.environment, **own, **folders},
                    folder=scratch,
                    time_limit=time_limit,
                )
            except OSError as error:
                raise UsageError(
                    f"{self.python} cannot be run: {error.strerror}", hint="Is it a Python for this machine?"
                ) from error
            return Ran(ended, _content(place), token, command)

    def probe(self) -> None:
        """Make sure that it is a Python that can run the checks.

        Raises:
            UsageError: It is none, or one that is too old, or it does not answer.
        """
        limit = min(self.time_limit, _PROBE_SECONDS)
        ran = self._run((str(self.python), str(_SAY_VERSION)), limit)
        answer = _version(ran)
        if answer is not None and answer >= OLDEST:
            return
        if answer is not None:
            why = f"it is Python {'.'.join(map(str, answer))}"
        elif ran.ended.returncode is None:
            why = f"it did not say its version within {limit:g} s"
        else:
            last = ran.ended.stderr.strip().splitlines()[-1:]
            why = "; ".join(["it did not say its version", *last])
        raise UsageError(f"{self.python} is not a Python {OLDEST[0]}.{OLDEST[1]} or newer: {why}", hint=_WHICH)


def find_target(python: str | os.PathLike[str], time_limit: float, environment: Mapping[str, str] | None) -> Target:
    """The target of an interpreter's path, which has been started once.

    Raises:
        UsageError: There is no such Python, or the time limit is none.
    """
    if not isinstance(time_limit, (int, float)) or not math.isfinite(time_limit) or time_limit <= 0:
        raise UsageError(f"the time limit is not a positive number of seconds: {time_limit}", hint="120 is usual")
    found = shutil.which(python)
    if found is None:
        raise UsageError(f"there is no executable at {os.fspath(python)}", hint=_WHICH)
    # Absolute, links kept: a virtual environment is known by its link.
    target = Target(Path(found).absolute(), time_limit, environment or {})
    target.probe()
    return target


class _Version(msgspec.Struct):
    token: str
    version: tuple[int, int, int]


def _version(ran: Ran) -> tuple[int, int, int] | None:
    try:
        answer = msgspec.json.decode(ran.result or b"", type=_Version)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return answer.version if answer.token == ran.token else None


def _content(place: Path) -> bytes | None:
    """The file's bytes; only a regular file can be a result, a pipe would be waited for without end."""
    try:
        if not place.is_file():
            return None
        with place.open("rb") as file:
            return file.read(_RESULT_BYTES)
    except OSError:
        return None
