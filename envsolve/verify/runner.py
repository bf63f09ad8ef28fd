"""Runs the checks of an environment, each in a process of the environment's own interpreter.

The interpreter starts as its user would start it: ``PYTHONPATH``, the user's site directory and ``LD_LIBRARY_PATH``
stay in force (no ``python -I``), because a package that they put before the environment's own breaks the user's
programs as well, and a check that ignored them would say yes although the answer is no.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from envsolve.environment.layout import interpreter_of
from envsolve.errors import UsageError
from envsolve.system.processes import Ended, signals_raised
from envsolve.system.progress import advance, phase
from envsolve.values import ComputeCapability
from envsolve.verify.report import Check, Explain, Probe, Report, Status, unexplained
from envsolve.verify.scripts import BUILT_IN, Script, chosen, find_scripts, remove_abandoned
from envsolve.verify.target import Ran, Target, find_target, places, run_together

HARNESS = Path(__file__).with_name("harness.py")
"""Runs a function of a script in the interpreter that is verified."""
_DETAIL_CHARACTERS = 8000
_TAIL_LINES = 20
DRIVER = "driver"
"""The check that lists the GPUs."""
KERNELS = ("torch-elementwise", "torch-matmul", "torch-convolution", "triton-kernel")
"""Checks that are tried on a GPU of each kind: torch's own code, cuBLAS, cuDNN, Triton's compiler."""
_QUICK = Path(__file__).with_name("quick_script.py")
_CAPABILITY = re.compile(r"\(cc (\d+\.\d)\)")
_MOST_PRINTED = 16_000


def run_checks(
    python: str | os.PathLike[str] | Target,
    *,
    time_limit: float = 120.0,
    environment: Mapping[str, str] | None = None,
    folder: Path = BUILT_IN,
    only: Sequence[str] = (),
    quick: bool = False,
    explain: Explain = unexplained,
    arguments: Sequence[str] = (),
) -> Report:
    """Check an environment on the GPUs of this machine: driver, compilers, PyTorch, Triton and packages built on them.

    Args:
        python: The environment's interpreter; a target has been started once already, with its time limit.
        time_limit: Seconds for each check.
        environment: Variables to set for the checks, beside those already set; a plan's ``environment``.
        directory: Where the check scripts are. If all of them run on GPUs, the built-in one lists the GPUs.
        only: Names of the checks to run; all if empty. The one that lists the GPUs runs with those that need them.
        quick: Whether to run only those that show the most in the least time.
        explain: Finds the root cause of a failure in its text.
        arguments: For each check that runs on a GPU, after the GPU's number.

    Raises:
        UsageError: ``python`` is not a Python that runs, ``time_limit`` is not positive, or ``only`` names no check.
        InterruptedBySignalError: SIGTERM or SIGHUP came; nothing of the checks is left.
    """
    scripts = find_scripts(folder)
    wanted = chosen([script for script in scripts if script.runs_on != "architecture"], only, quick=quick)
    if not any(script.runs_on == "host" for script in scripts):
        scripts = (*(script for script in find_scripts() if script.name == DRIVER), *scripts)
    if any(script.runs_on != "host" for script in wanted):
        wanted = tuple(s for s in scripts if s in wanted or s.name == DRIVER)
    with signals_raised():
        remove_abandoned()
        found = python if isinstance(python, Target) else find_target(python, time_limit, environment)
        with replace(found, explain=explain).sharing_byte_code() as target:
            return _timed(target, lambda: _checks_here(target, wanted, tuple(arguments)))


def run_compile_checks(
    python: str | os.PathLike[str],
    gpus: Sequence[ComputeCapability],
    *,
    time_limit: float = 120.0,
    environment: Mapping[str, str] | None = None,
    folder: Path = BUILT_IN,
    only: Sequence[str] | None = None,
    explain: Explain = unexplained,
) -> Report:
    """Check, without any GPU or driver, that an environment compiles kernels for given GPUs.

    Args:
        python: The environment's interpreter.
        gpus: Compute capabilities to compile for.
        time_limit: Seconds for each check.
        environment: Variables to set for the checks, beside those already set; a plan's ``environment``.
        directory: Where the check scripts are.
        only: Names of the checks to run, which may be none; all where None.
        explain: As for :func:`run_checks`.

    Raises:
        UsageError: As :func:`run_checks`, or ``gpus`` is empty and there is something to compile.
        InterruptedBySignalError: SIGTERM or SIGHUP came; nothing of the checks is left.
    """
    if not gpus and (only is None or only):
        raise UsageError("no compute capability to compile for", hint="Name one, such as 9.0 (--gpu 9.0).")
    scripts = [script for script in find_scripts(folder) if script.runs_on == "architecture"]
    wanted = scripts if only is None else [script for script in scripts if script.name in only]
    with signals_raised():
        remove_abandoned()
        found = replace(find_target(python, time_limit, environment), explain=explain)
        steps = [Step(script, (str(gpu),), str(gpu)) for gpu in gpus for script in wanted]
        with found.sharing_byte_code() as target:
            return _timed(target, lambda: [check for check, _ in _run(target, steps, places(1))])


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a script: a check on one GPU, say."""

    script: Script
    arguments: tuple[str, ...] = ()
    gpu: str | None = None


def _timed(target: Target, checks: Callable[[], Iterable[Check]]) -> Report:
    began, started = datetime.now(timezone.utc).astimezone(), time.monotonic()
    found = tuple(checks())
    seconds = round(time.monotonic() - started, 3)
    made = began.isoformat(timespec="seconds")
    return Report(python=str(target.python), checks=found, made=made, seconds=seconds, versions=target.versions)


def _checks_here(target: Target, scripts: Sequence[Script], arguments: tuple[str, ...]) -> Iterator[Check]:
    """Run the first check, which lists the GPUs (``devices``); then, side by side, the host's and each GPU's.

    Those of several GPUs have the machine for themselves, one after another.
    """
    host = [Step(script) for script in scripts if script.runs_on == "host"]
    devices: tuple[str, ...] = ()
    # By itself: a driver that hangs or crashes would otherwise take checks beside it along.
    for check, listed in _run(target, host[:1], 1):
        devices = listed or ()
        yield check
    single = [script for script in scripts if script.runs_on == "gpu"]
    on_one = [
        Step(script, (str(ordinal), *arguments), f"{ordinal}: {device}")
        for script in single
        for ordinal, device in enumerate(devices)
    ]
    yield from (check for check, _ in _run(target, [*host[1:], *on_one], places(len(devices))))
    if not devices:
        yield from (Check(s.name, None, "skip", 0.0, "the driver lists no GPU to run on") for s in single)
    for script in scripts:
        if script.runs_on != "gpus":
            continue
        if len(devices) < 2:
            yield Check(script.name, None, "skip", 0.0, f"needs two GPUs; the driver lists {len(devices)}")
        else:
            # One at a time: these use all GPUs, so checks beside them would take memory and time from both.
            yield from (check for check, _ in _run(target, [Step(script, (str(len(devices)),))], 1))


_Ended = tuple[Check, "tuple[str, ...] | None"]
"""A check that ran, and the GPUs that it listed, if it did."""


def _run(target: Target, steps: Sequence[Step], at_once: int) -> list[_Ended]:
    """Run steps side by side, and each that fails there once more by itself: that is its result.

    Beside others a sound check may fail, for want of memory or time, or on a GPU that allows only one process.
    """
    starts = [partial(target.start, HARNESS, str(s.script.path), s.script.function, *s.arguments) for s in steps]
    ended: dict[int, _Ended] = {}
    phase("running checks" if len(steps) > 1 else f"running {steps[0].script.name}" if steps else "", len(steps))
    for number, ran in run_together(starts, at_once):
        ended[number] = check, _ = _ended(target, steps[number], ran)
        advance(1, f"{check.name}: {check.status}")
    if at_once > 1 and len(steps) > 1:
        for number, start in enumerate(starts):
            if (beside := ended[number][0]).status == "fail":
                phase(f"running {beside.name} again on its own")
                ((_, ran),) = run_together([start], 1)
                alone, devices = _ended(target, steps[number], ran)
                ended[number] = _noted(alone, beside), devices
    return [ended[number] for number in range(len(steps))]


def _noted(alone: Check, beside: Check) -> Check:
    if alone.status == "fail":
        return alone
    words = (beside.detail.splitlines() or [""])[0]
    return replace(alone, detail=f"{alone.detail}; passed when run by itself, failed beside other checks ({words})")


class _Result(msgspec.Struct):
    """The harness's result."""

    status: Status
    detail: str
    token: str
    devices: tuple[str, ...] | None = None
    seen: Mapping[str, str] = {}
    imports: float | None = None


def _ended(target: Target, step: Step, ran: Ran) -> _Ended:
    result = _read_result(ran)
    status, detail = _judge(ran.ended, result, target.time_limit)
    if result is None:  # It could not say itself which variables a failure may come from.
        around = {**os.environ, **target.environment}
        detail = "\n".join([detail, *(f"{n} is set to {around[n]}" for n in step.script.variables if n in around)])
    cause = None
    if status != "pass":
        cause, explanation = target.explain(detail)
        if status == "fail" and result and cause is None:
            # The error may only name a program that failed, whose own words are on stderr.
            cause = target.explain(ran.ended.stderr)[0]
        if status == "fail" and explanation:
            detail = f"{detail}\n{explanation}"
    settings = [f"{name}={value}" for name, value in target.environment.items()]
    check = Check(
        step.script.name,
        step.gpu,
        status,
        round(ran.ended.seconds, 3),
        detail,
        cause,
        shlex.join([*(["env", *settings] if settings else []), *ran.command]),
        result.seen if result else {},
        imports=round(result.imports, 3) if result and result.imports is not None else None,
    )
    return check, result.devices if result else None


def _judge(ended: Ended, result: _Result | None, time_limit: float) -> tuple[Status, str]:
    """A process must end by itself, in time, with a result and the exit code that matches it."""
    if ended.returncode is None:
        return "fail", _with_tail(f"did not end within {time_limit:g} s and was killed", ended)
    if result is None:
        return "fail", _with_tail(f"{ending(ended.returncode)} and left no valid result", ended)
    # A crash after the result, while libraries are unloaded, is one that the user's programs get as well.
    if result.status != "fail" and ended.returncode != 0:
        return "fail", _with_tail(f"reported {result.status}, yet {ending(ended.returncode)}", ended)
    return result.status, _bounded(result.detail)


def _read_result(ran: Ran) -> _Result | None:
    try:
        result = msgspec.json.decode(ran.result or b"", type=_Result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # A program under test can write to the file as well; it does not know the token of this run.
    return result if result.token == ran.token else None


def ending(returncode: int) -> str:
    """How a process ended, in words."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"


def _with_tail(sentence: str, ended: Ended) -> str:
    # Python 3.14 adds thirty lines of the C stack to its account of a crash, behind the frames that people read.
    said = ended.stderr.partition("\nCurrent thread's C stack trace")[0]
    return _bounded("\n".join([sentence, *said.splitlines()[-_TAIL_LINES:]]))


def _bounded(text: str) -> str:
    # The start of an error names it, the end says where: the middle is what a long one can lose.
    half = _DETAIL_CHARACTERS // 2
    return text if len(text) <= _DETAIL_CHARACTERS else f"{text[:half]}\n[...]\n{text[-half:]}"


def probe(
    prefix: Path, environ: Mapping[str, str] = os.environ, *, time_limit: float = 60.0, folder: Path = BUILT_IN
) -> tuple[Probe, ...]:
    """Try what torch, CUDA and Triton of an environment do on this computer.

    The checks prove all that they can; this tries only what a diagnosis needs. A crash or a hang is an answer.

    Args:
        prefix: The environment's root directory.
        environ: Variables to set for the children, over those already set.
        time_limit: Seconds for each step.
        directory: Where the checks of ``verify`` are.

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
    """From the bottom up; a step that needs one that does not work is not tried."""
    driver, devices = _tried(target, scripts[DRIVER].path, DRIVER, scripts[DRIVER].function)
    yield driver
    imported, _ = _tried(target, _QUICK, "torch-import", "torch_import")
    yield imported
    if imported.outcome != "works":
        return
    # The machine has no GPU: torch would only repeat that.
    if driver.outcome == "skipped":
        yield Probe("torch-cuda", None, "skipped", driver.detail)
        return
    started, _ = _tried(target, _QUICK, "torch-cuda", "torch_cuda")
    yield started
    # One GPU of each kind is enough for a diagnosis, the first of its kind.
    cards = {device: ordinal for ordinal, device in reversed(list(enumerate(devices)))} if not started.failed else {}
    for card, ordinal in reversed(cards.items()):
        gpu = f"{ordinal}: {card}"
        if match := _CAPABILITY.search(card):
            yield _tried(target, _QUICK, "triton-ptxas", "triton_ptxas", match[1], gpu=gpu)[0]
        for script in (scripts[name] for name in KERNELS if name in scripts):
            yield _tried(target, script.path, script.name, script.function, str(ordinal), gpu=gpu)[0]


_OUTCOMES: Mapping[str, Literal["works", "fails", "skipped"]] = {"pass": "works", "fail": "fails", "skip": "skipped"}


def _tried(
    target: Target, script: Path, name: str, function: str, *arguments: str, gpu: str | None = None
) -> tuple[Probe, tuple[str, ...]]:
    """A step that ran, and the GPUs that it listed, if it did."""
    phase(f"trying {name}")
    ran = target.run(HARNESS, str(script), function, *arguments)
    result, printed, seconds = _read_result(ran), ran.ended.stderr[-_MOST_PRINTED:], round(ran.ended.seconds, 3)
    code = ran.ended.returncode
    if code is None:
        words = f"did not end within {target.time_limit:g} s and was killed"
        return Probe(name, gpu, "hangs", words, printed, seconds), ()
    if result is None or (result.status != "fail" and code != 0):
        return Probe(name, gpu, "crashes", _crash(code, printed), printed, seconds), ()
    return Probe(
        name, gpu, _OUTCOMES[result.status], result.detail, printed, seconds, result.seen
    ), result.devices or ()


def _crash(code: int, printed: str) -> str:
    """How it ended, and at what: the last line before Python's own account of the crash."""
    before = printed.partition("Fatal Python error:")[0].strip().splitlines()
    return "; its last output: ".join([ending(code), *before[-1:]])
