"""An install in a process of its own, which tests can kill: ``python -m tests.install.child PLAN PREFIX MANAGER``.

Prints the stage of every step; leaves with the exit code that the command line would.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import msgspec

from envsolve.errors import EnvsolveError, interrupt_once
from envsolve.install import environment
from envsolve.install.environment import install
from envsolve.install.errors import Step
from envsolve.planning.plan import Plan


def _slowly(_: Path) -> bool:
    time.sleep(0.1)
    return True


def main(plan: str, prefix: str, manager: str) -> int:
    def say(step: Step) -> None:
        print(step.stage, step.text, flush=True)

    # As the command line does: of several Ctrl-C, the last must not end the process as a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt_once)
    environment.WAIT_SECONDS = 120
    try:
        source = msgspec.json.decode(Path(plan).read_bytes(), type=Plan)
        install(source, Path(prefix), manager=manager, progress=say, verify=_slowly)
    except EnvsolveError as error:
        print(error.message, error.hint, sep="\n", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
