"""The program: ``envsolve``, and ``python -m envsolve``."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

from envsolve.cli.main import run


def program() -> None:
    """Run the command line, and leave with its exit code whatever a library does as Python takes itself down.

    Threads of rattler may outlive what they were asked for, and crash then: measured with py-rattler 0.28 in one of six
    plans whose channel does not answer, which left with 139 in place of 5.
    """
    try:
        run()
    except SystemExit as left:
        if "rattler" not in sys.modules:
            raise
        code = left.code
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):  # the reader of the output is gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    program()
