"""The program: ``envsolve``, and ``python -m envsolve``."""

from __future__ import annotations

import atexit
import gc
import os
import sys

from envsolve.errors import interrupt_at_once


def program() -> None:
    """Run the command line, and leave with its exit code at once.

    Python taking itself down, value by value, is a tenth of a plan's time and of use to nobody. And threads of rattler
    may outlive the work that started them, and crash then: measured with py-rattler 0.28 in one of six plans whose
    channel does not answer, which left with 139 in place of 5.
    """
    if sys.argv[1:] != ["--version"]:  # which takes as long as this import
        import signal
        import warnings

        # Libraries warn about foreign text, such as an odd escape in a marker; the reader of a plan cannot mend it.
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        # A shell lets its background jobs ignore Ctrl-C, which is for the job in the foreground.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt_at_once)
    from envsolve.cli.main import run

    # What a plan makes stays to its end: to look for garbage at every 700 new values takes a thirtieth of the time.
    gc.set_threshold(200_000)
    try:
        run()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    atexit._run_exitfuncs()
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except BrokenPipeError:
        pass  # the reader of the output is gone
    except OSError:
        code = code or 1  # not all of it was written
    os._exit(code)


if __name__ == "__main__":
    program()
