"""The nearest thing to proof without a GPU: what compiles for a card, and what an environment's files carry for it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from envsolve.machine.cc import ComputeCapability
from envsolve.verify.report import Report
from envsolve.verify.runner import run_compile_checks
from envsolve.verify.scripts import expect_known, find_scripts
from envsolve.verify.static import NAMES, static_checks


def check_without_gpu(
    python: str | os.PathLike[str],
    gpus: Sequence[ComputeCapability],
    *,
    time_limit: float = 120.0,
    only: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Report:
    """Check that an environment compiles kernels for cards, carries code for them, and that its libraries are found.

    Args:
        python: The environment's interpreter.
        gpus: The cards, by compute capability.
        time_limit: Seconds for each check that runs something.
        only: Names of the checks to run; all where empty.
        environ: Variables by which the loader finds libraries.

    Raises:
        UsageError: As :func:`run_compile_checks`.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    compiling = [script.name for script in find_scripts() if script.compiles]
    expect_known(only, [*NAMES, *compiling], "those that run on a GPU are there without --compile-only")
    gpus = tuple(dict.fromkeys(gpus))
    wanted = only or (*NAMES, *compiling)
    ran = run_compile_checks(python, gpus, time_limit=time_limit, only=[n for n in wanted if n in compiling])
    static, started = [name for name in wanted if name in NAMES], time.monotonic()
    checks = tuple(static_checks(Path(ran.python or python), gpus, static, environ, time_limit))
    seconds = (ran.seconds or 0.0) + time.monotonic() - started
    return replace(ran, checks=(*checks, *ran.checks), seconds=round(seconds, 3))
