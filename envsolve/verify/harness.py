"""Runs one check script inside the interpreter that is verified: ``python harness.py SCRIPT [ARGUMENT]``.

This file and the scripts import nothing of envsolve and keep to what Python 3.8 understands. The result is one JSON
object in the file that ``ENVSOLVE_RESULT`` names, where no library's chatter can reach it, or on stdout without it. The
exit code is 0 for pass and skip, 1 for fail.

A script has a function ``check``, called with ARGUMENT where there is one. It returns a dict with ``detail`` to pass,
raises :class:`unittest.SkipTest` for what cannot be tried here, and anything else to fail. ``NEEDS`` names the
top-level modules without which it is skipped, ``VARIABLES`` the environment variables that a failure may come from.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any
from unittest import SkipTest


def load(path: str) -> Any:
    """Import a script from its file; Triton needs a kernel's source on disk."""
    spec = importlib.util.spec_from_file_location("envsolve_check", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    as_it_was, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # Leave nothing behind beside the script.
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = as_it_was
    return module


def outcome(path: str, arguments: list[str]) -> dict[str, Any]:
    """Run the script's check and say how it ended."""
    script = load(path)
    missing = [name for name in script.NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        return {"status": "skip", "detail": " and ".join(missing) + " is not installed in this environment"}
    try:
        return {"status": "pass", **script.check(*arguments)}
    except SkipTest as reason:
        return {"status": "skip", "detail": str(reason)}
    except Exception as error:
        traceback.print_exc()
        words = "".join(traceback.format_exception_only(type(error), error)).strip()
        return {"status": "fail", "detail": "\n".join([words, *settings(script)])}


def settings(script: Any) -> list[str]:
    """Say which of the variables that bear on the check are set: a failure may be theirs."""
    names = [name for name in getattr(script, "VARIABLES", ()) if name in os.environ]
    return [f"{name} is set to {os.environ[name]}" for name in names]


def watch_the_caller() -> int | None:
    """Fork a process that kills this whole group when the caller is gone: even ``kill -9`` leaves nobody behind.

    Another process, because a thread would not run while the check holds the interpreter's lock.
    """
    lifeline = os.environ.pop("ENVSOLVE_LIFELINE", None)
    if lifeline is None:
        return None
    watcher = os.fork()
    if not watcher:
        os.read(int(lifeline), 1)  # Returns when the caller's end of the pipe closes.
        os.killpg(0, signal.SIGKILL)
    os.close(int(lifeline))
    return watcher


def main() -> int:
    """Run the check that the command line names; return the exit code."""
    # Python puts this file's folder first: its modules must not stand before those that are verified.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    # Proves that the result is this file's: no program that is not Python, and no check, can know it.
    token = os.environ.pop("ENVSOLVE_TOKEN", None)
    watcher = watch_the_caller()
    try:
        result = outcome(sys.argv[1], sys.argv[2:])
    finally:
        if watcher is not None:
            os.kill(watcher, signal.SIGKILL)
            os.waitpid(watcher, 0)
    place = os.environ.get("ENVSOLVE_RESULT")
    if place:
        Path(place).write_text(json.dumps({**result, "token": token}), encoding="utf-8")
    else:
        sys.stdout.write(json.dumps(result) + "\n")
    return 1 if result["status"] == "fail" else 0


if __name__ == "__main__":
    sys.exit(main())
