"""Runs one check script inside the interpreter that is verified: ``python harness.py SCRIPT [ARGUMENT]``.

This file and the scripts import nothing of envsolve and keep to what Python 3.8 understands. The result is one JSON
object in the file that ``ENVSOLVE_RESULT`` names, where no library's chatter can reach it, or on stdout without it. The
exit code is 0 for pass and skip, 1 for fail.

A script has a function ``check``, called with ARGUMENT where there is one. It returns a dict with ``detail`` to pass,
raises :class:`unittest.SkipTest` for what cannot be tried here, and anything else to fail. ``NEEDS`` names the
top-level modules without which it is skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
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
        return {"status": "fail", "detail": "".join(traceback.format_exception_only(type(error), error)).strip()}


def main() -> int:
    """Run the check that the command line names; return the exit code."""
    # Python puts this file's folder first: its modules must not stand before those that are verified.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    result = outcome(sys.argv[1], sys.argv[2:])
    text = json.dumps(result) + "\n"
    place = os.environ.get("ENVSOLVE_RESULT")
    if place:
        Path(place).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 1 if result["status"] == "fail" else 0


if __name__ == "__main__":
    sys.exit(main())
