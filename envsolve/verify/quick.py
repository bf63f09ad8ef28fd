"""Trying an environment in its own interpreter, each step a child process with a time limit.

The children are those of ``verify``: the user's variables stay in force, a crash or a hang is an answer, and nothing is
left of them. Where ``verify`` proves by every check that it has, this asks only what a diagnosis needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from envsolve.environment.layout import interpreter_of
from envsolve.errors import UsageError
from envsolve.system.processes import signals_raised
from envsolve.verify.report import Probe
from envsolve.verify.runner import DRIVER, HARNESS, ending
from envsolve.verify.scripts import BUILT_IN, Script, find_scripts, remove_abandoned
from envsolve.verify.target import Ran, Target, find_target

_SCRIPT = Path(__file__).with_name("quick_script.py")
KERNELS = ("torch-elementwise", "torch-matmul", "torch-convolution", "triton-kernel")
"""Checks of ``verify`` that are tried on a card of each kind: torch's own code, cuBLAS, cuDNN, Triton's compiler."""
_CAPABILITY = re.compile(r"\(cc (\d+\.\d)\)")
_MOST_PRINTED = 16_000


def probe(
    prefix: Path, environ: Mapping[str, str] = os.environ, *, time_limit: float = 60.0, folder: Path = BUILT_IN
) -> tuple[Probe, ...]:
    """Try what torch, CUDA and Triton of an environment do on this computer.

    Args:
        prefix: The environment's root folder.
        environ: Variables to set for the children, over those already set.
        time_limit: Seconds for each step.
        folder: Where the checks of ``verify`` are.

    Returns:
        Each step and how it ended; a Python that does not start is the one step of its answer.

    Raises:
        UsageError: ``time_limit`` is not positive.
        InterruptedBySignalError: SIGTERM or SIGHUP came; nothing of the children is left.
    """
    if not time_limit > 0:
        raise UsageError(f"the time limit is not a positive number of seconds: {time_limit}", hint="60 is usual")
    with signals_raised():
        remove_abandoned()
        try:
            target = find_target(interpreter_of(prefix), time_limit, environ)
        except UsageError as error:
            return (Probe("python", None, "fails", error.message),)
        return tuple(_steps(target, {s.name: s for s in find_scripts(folder) if s.runs_on != "architecture"}))


def _steps(target: Target, scripts: Mapping[str, Script]) -> Iterator[Probe]:
    """From the bottom up; what stands on a step that does not work is not tried."""
    driver, devices = _tried(target, scripts[DRIVER].path, DRIVER, scripts[DRIVER].function)
    yield driver
    imported, _ = _tried(target, _SCRIPT, "torch-import", "torch_import")
    yield imported
    if imported.outcome != "works":
        return
    if driver.outcome == "skipped":
        yield Probe("torch-cuda", None, "skipped", driver.detail)
        return
    started, _ = _tried(target, _SCRIPT, "torch-cuda", "torch_cuda")
    yield started
    cards = {device: ordinal for ordinal, device in reversed(list(enumerate(devices)))} if not started.failed else {}
    for card, ordinal in reversed(cards.items()):
        gpu = f"{ordinal}: {card}"
        if match := _CAPABILITY.search(card):
            yield _tried(target, _SCRIPT, "triton-ptxas", "triton_ptxas", match[1], gpu=gpu)[0]
        for script in (scripts[name] for name in KERNELS if name in scripts):
            yield _tried(target, script.path, script.name, script.function, str(ordinal), gpu=gpu)[0]


@dataclass(frozen=True, slots=True)
class _Result:
    """What the harness leaves."""

    status: Literal["pass", "fail", "skip"]
    detail: str
    token: str
    devices: tuple[str, ...] = ()
    seen: Mapping[str, str] = field(default_factory=dict)


_OUTCOMES: Mapping[str, Literal["works", "fails", "skipped"]] = {"pass": "works", "fail": "fails", "skip": "skipped"}


def _tried(
    target: Target, script: Path, name: str, function: str, *arguments: str, gpu: str | None = None
) -> tuple[Probe, tuple[str, ...]]:
    """A step that ran, and the GPUs that it listed, where it did."""
    ran = target.run(HARNESS, str(script), function, *arguments)
    result, printed, seconds = _result(ran), ran.ended.stderr[-_MOST_PRINTED:], round(ran.ended.seconds, 3)
    code = ran.ended.returncode
    if code is None:
        words = f"did not end within {target.time_limit:g} s and was killed"
        return Probe(name, gpu, "hangs", words, printed, seconds), ()
    if result is None or (result.status != "fail" and code != 0):
        return Probe(name, gpu, "crashes", _crash(code, printed), printed, seconds), ()
    return Probe(name, gpu, _OUTCOMES[result.status], result.detail, printed, seconds, result.seen), result.devices


def _crash(code: int, printed: str) -> str:
    """How it ended, and at what: the last line before Python's own account of the crash."""
    before = printed.partition("Fatal Python error:")[0].strip().splitlines()
    return "; the last that it said: ".join([ending(code), *before[-1:]])


def _result(ran: Ran) -> _Result | None:
    try:
        result = msgspec.json.decode(ran.result or b"", type=_Result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return result if result.token == ran.token else None
