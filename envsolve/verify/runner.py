"""Runs the checks of an environment, each in a process of the environment's own interpreter.

The interpreter starts as its user would start it: ``PYTHONPATH``, the user's site folder and ``LD_LIBRARY_PATH`` stay
in force (no ``python -I``), because a package that they put before the environment's own breaks the user's programs
too, and a check that looked away would say yes where the answer is no.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsolve.errors import UsageError
from envsolve.machine.cc import ComputeCapability
from envsolve.verify.causes import cause_of
from envsolve.verify.child import Ended, run_child
from envsolve.verify.report import Check, Report, Status
from envsolve.verify.scripts import BUILT_IN, Script, find_scripts

_HARNESS = Path(__file__).with_name("harness.py")
_RESULT_BYTES = 1 << 20
_DETAIL_CHARACTERS = 8000
_TAIL_LINES = 20


def run_checks(
    python: Path, *, time_limit: float = 120.0, environment: Mapping[str, str] | None = None, folder: Path = BUILT_IN
) -> Report:
    """Check an environment on the GPUs at hand: driver, PyTorch and Triton, on every GPU that the driver lists.

    Args:
        python: The environment's interpreter.
        time_limit: Seconds for each check.
        environment: Variables to set for the checks, beside those already set; a plan's ``environment``.
        folder: Where the check scripts are.

    Raises:
        UsageError: ``python`` cannot be run.
    """
    target = _Target(_executable(python), time_limit, environment or {})
    return Report(python=str(target.python), checks=tuple(_checks_here(target, find_scripts(folder))))


def run_compile_checks(
    python: Path,
    gpus: Sequence[ComputeCapability],
    *,
    time_limit: float = 120.0,
    environment: Mapping[str, str] | None = None,
    folder: Path = BUILT_IN,
) -> Report:
    """Check, without any GPU or driver, that an environment compiles kernels for given cards.

    Args:
        python: The environment's interpreter.
        gpus: Compute capabilities to compile for.
        time_limit: Seconds for each check.
        environment: Variables to set for the checks, beside those already set; a plan's ``environment``.
        folder: Where the check scripts are.

    Raises:
        UsageError: ``python`` cannot be run, or ``gpus`` is empty.
    """
    if not gpus:
        raise UsageError("no compute capability to compile for", hint="Name one, such as 9.0 (--gpu 9.0).")
    target = _Target(_executable(python), time_limit, environment or {})
    checks = (
        target.run(script, str(gpu), gpu=str(gpu)).check
        for gpu in gpus
        for script in find_scripts(folder)
        if script.runs_on == "architecture"
    )
    return Report(python=str(target.python), checks=tuple(checks))


def _checks_here(target: _Target, scripts: Sequence[Script]) -> Iterator[Check]:
    """Run the host's checks, then each GPU's; one of the former lists the GPUs (``devices`` in its result)."""
    devices: list[str] = []
    for script in scripts:
        if script.runs_on == "host":
            outcome = target.run(script)
            devices = outcome.facts.get("devices", devices)
            yield outcome.check
    for script in scripts:
        if script.runs_on == "gpu":
            if not devices:
                yield Check(script.name, None, "skip", 0.0, "the driver lists no GPU to run it on")
            for ordinal, device in enumerate(devices):
                yield target.run(script, str(ordinal), gpu=f"{ordinal}: {device}").check


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A check, and what else its script reported."""

    check: Check
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Target:
    """The interpreter to verify and how to run it."""

    python: Path
    time_limit: float
    environment: Mapping[str, str]

    def run(self, script: Script, *arguments: str, gpu: str | None = None) -> _Outcome:
        command = [str(self.python), "-X", "faulthandler", str(_HARNESS), str(script.path), *arguments]
        # One scratch folder a check, for everything it writes: no cache of an earlier run can make it pass.
        with tempfile.TemporaryDirectory(prefix="envsolve-verify-", ignore_cleanup_errors=True) as scratch:
            place = Path(scratch, "result.json")
            own = {"ENVSOLVE_RESULT": str(place), "TMPDIR": scratch, "TMP": scratch, "TEMP": scratch}
            try:
                ended = run_child(
                    command,
                    environment={**os.environ, **self.environment, **own},
                    folder=Path(scratch),
                    time_limit=self.time_limit,
                )
            except OSError as error:
                raise UsageError(
                    f"{self.python} cannot be run: {error.strerror}", hint="Is it a Python for this machine?"
                ) from error
            result = _read_result(place)
        status, detail = self._judge(ended, result)
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        check = Check(
            script.name,
            gpu,
            status,
            round(ended.seconds, 3),
            detail,
            None if status == "pass" else cause_of(detail),
            shlex.join([*(["env", *settings] if settings else []), *command]),
        )
        return _Outcome(check, result or {})

    def _judge(self, ended: Ended, result: Mapping[str, Any] | None) -> tuple[Status, str]:
        """A process must end by itself, in time, with a result and the exit code that goes with it."""
        if ended.returncode is None:
            return "fail", _with_tail(f"did not end within {self.time_limit:g} s and was killed", ended)
        if result is None:
            return "fail", _with_tail(f"{_ending(ended.returncode)} and left no valid result", ended)
        if result["status"] != "fail" and ended.returncode != 0:
            return "fail", _with_tail(f"reported {result['status']}, yet {_ending(ended.returncode)}", ended)
        return result["status"], _bounded(result["detail"])


def _executable(python: Path) -> Path:
    """The interpreter as an absolute path, links kept (a virtual environment is known by its link)."""
    found = shutil.which(python)
    if found is None:
        raise UsageError(f"there is no executable at {python}", hint="Name the Python of the environment to verify.")
    return Path(found).absolute()


def _read_result(place: Path) -> dict[str, Any] | None:
    try:
        with place.open("rb") as file:
            result = json.loads(file.read(_RESULT_BYTES))
    except (OSError, ValueError):
        return None
    sound = isinstance(result, dict) and result.get("status") in ("pass", "fail", "skip")
    return result if sound and isinstance(result.get("detail"), str) else None


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"


def _with_tail(sentence: str, ended: Ended) -> str:
    return _bounded("\n".join([sentence, *ended.stderr.splitlines()[-_TAIL_LINES:]]))


def _bounded(text: str) -> str:
    half = _DETAIL_CHARACTERS // 2
    return text if len(text) <= _DETAIL_CHARACTERS else f"{text[:half]}\n[...]\n{text[-half:]}"
