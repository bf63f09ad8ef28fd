"""Runs one function of a check script inside the interpreter that is verified.

``python harness.py SCRIPT FUNCTION [ARGUMENT]``

This file, the scripts and the modules of ``shared`` import nothing of envsolve and keep to what Python 3.8 understands.
The result is one JSON object in the file that ``ENVSOLVE_RESULT`` names, so that no library's output mixes with it, or
on
stdout without it. The exit code is 0 for pass and skip, 1 for fail.

FUNCTION is called with ARGUMENT if there is one. It returns a dict with ``detail`` to pass, raises
:class:`unittest.SkipTest` if it cannot run here, and anything else to fail. Its decorator decides
whether it is skipped for want of a module, and which environment variables a failure names.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

# A context takes some 500 MiB on newer GPUs, cuBLAS and cuDNN tens to hundreds more.
SCARCE_MIB = 1024
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
# Compilers put whole programs into their errors: first words and last are what is read.
MOST_CHARACTERS = 64 * 1024


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


def outcome(path: str, function: str, arguments: list[str]) -> dict[str, Any]:
    """Run a function of the script and say how it ended."""
    run = getattr(load(path), function)
    declared = getattr(run, "declared", {})
    needs = declared.get("needs", ())
    missing = [name for name in needs if importlib.util.find_spec(name) is None]
    if missing:
        return {"status": "skip", "detail": " and ".join(missing) + " is not installed in this environment"}
    took = {}
    try:
        if "torch" in needs:
            took["imports"] = seconds_of_importing("torch")
        return {"status": "pass", **took, **run(*arguments)}
    except Exception as error:
        if is_skip(error):
            return {"status": "skip", "detail": str(error), **took}
        with suppress(Exception):  # A library may have closed or replaced stderr.
            traceback.print_exc()
        words = "".join(traceback.format_exception_only(type(error), error)).strip()
        on_a_gpu = declared.get("runs_on") == "gpu"
        notes = [*settings(declared.get("variables", ())), *(memory(*arguments) if on_a_gpu else ())]
        return {"status": "fail", "detail": "\n".join([words, *notes]), **took}


def is_skip(error: Exception) -> bool:
    """Whether a script says that it cannot run here; one that does has imported unittest, which takes 50 ms."""
    unittest = sys.modules.get("unittest")
    return unittest is not None and isinstance(error, unittest.SkipTest)


def writable(value: Any) -> Any:
    """A value that JSON can hold, of limited size: a path that is not UTF-8 has its bytes as escapes."""
    if isinstance(value, dict):
        return {name: writable(one) for name, one in value.items()}
    if not isinstance(value, str):
        return value
    half = MOST_CHARACTERS // 2
    text = value if len(value) <= MOST_CHARACTERS else f"{value[:half]}\n[...]\n{value[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def seconds_of_importing(name: str) -> float:
    """Import a module; reports separate its time from that of the check, which it often exceeds."""
    started = time.monotonic()
    importlib.import_module(name)
    return time.monotonic() - started


def settings(variables: Any) -> list[str]:
    """Name the variables that affect the check and are set: a failure may be theirs."""
    return [f"{name} is set to {os.environ[name]}" for name in variables if name in os.environ]


def memory(ordinal: str) -> list[str]:
    """State how much memory the GPU has left if it is little: libraries put the lack of it into many words.

    cuBLAS and cuDNN say that they are not initialised, or report an internal error, if they find no memory.
    """
    from check_driver import free_memory

    try:
        free = free_memory(int(ordinal))
    except Exception:  # No driver, or one that lacks calls, or a GPU that answers nothing any more.
        return []
    if free >= SCARCE_MIB:
        return []
    return [f"out of memory is likely: GPU {ordinal} has {free} MiB free"]


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


def watched_outcome(watcher: int | None) -> dict[str, Any]:
    """The outcome of the check that the command line names; the watcher ends with it."""
    try:
        return outcome(sys.argv[1], sys.argv[2], sys.argv[3:])
    finally:
        if watcher is not None:
            os.kill(watcher, signal.SIGKILL)
            os.waitpid(watcher, 0)


def main() -> int:
    """Run the check that the command line names; return the exit code."""
    # Python puts this file's directory first: its modules must not stand before those that are verified.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    # What the scripts share comes last, so that it stands before nothing.
    sys.path.append(str(here / "shared"))
    # Proves that the result is this file's: no program that is not Python, and no check, can know it.
    token = os.environ.pop("ENVSOLVE_TOKEN", None)
    place = os.environ.get("ENVSOLVE_RESULT")
    watcher = watch_the_caller()
    with tempfile.TemporaryDirectory() as caches:
        # An old kernel must not stand in for a new one.
        os.environ.update(dict.fromkeys(CACHES, caches))
        result = watched_outcome(watcher)
    if place:
        Path(place).write_text(json.dumps(writable({**result, "token": token})), encoding="utf-8")
    else:
        sys.stdout.write(json.dumps(result) + "\n")
    return 1 if result["status"] == "fail" else 0


if __name__ == "__main__":
    sys.exit(main())
