"""The command line, run within the process of the tests: the answer of a program of its own without starting a Python.

A new process takes 0.3 s to import what a command needs. Tests of start-up, signals, file descriptors and limits start
one; those of what is answered do not.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from collections.abc import Mapping
from subprocess import CompletedProcess
from typing import NoReturn

import pytest

from envsolve.cli.main import run
from envsolve.cli.output import SETTINGS, Settings


def answered(*words: str, given: bytes | str = b"", environ: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    """Run ``envsolve`` with these words and this standard input; variables are those of the caller unless given."""
    source = io.BytesIO(given.encode() if isinstance(given, str) else given)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    handler = signal.getsignal(signal.SIGINT)
    # Where nothing handles warnings, logging prints them to the standard error. The tests handle them.
    warnings = logging.StreamHandler(err)
    warnings.setLevel(logging.WARNING)
    with pytest.MonkeyPatch.context() as patch:
        if environ is not None:
            for name in os.environ.keys() - environ.keys():
                patch.delenv(name)
            for name, value in environ.items():
                patch.setenv(name, value)
        for name, value in vars(Settings()).items():
            patch.setattr(SETTINGS, name, value)
        for name in ("execvp", "execvpe"):
            patch.setattr(os, name, _become)
        patch.setattr(sys, "stdin", io.TextIOWrapper(source, encoding="utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        logging.getLogger().addHandler(warnings)
        try:
            with pytest.raises(SystemExit) as ended:
                run(list(words))
        finally:
            signal.signal(signal.SIGINT, handler)
            logging.getLogger().removeHandler(warnings)
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return CompletedProcess(["envsolve", *words], int(ended.value.code or 0), *said)


def _become(program: str, *_: object) -> NoReturn:
    raise AssertionError(f"envsolve would become {program}, and the tests with it: start a process")
