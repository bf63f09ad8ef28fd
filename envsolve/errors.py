"""Every failure that envsolve foresees, with its exit code and what to do next.

A stage raises one of these; the command line prints ``message`` and ``hint`` and leaves with ``exit_code``. Anything
else that escapes is a defect and leaves with 1.
"""

from __future__ import annotations


class EnvsolveError(Exception):
    """Base of all foreseen failures.

    Attributes:
        message: What happened, one sentence, no trailing advice.
        hint: What the user can do next, or None if the message says it all.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(EnvsolveError):
    """The input is malformed: a file, an option, a requirement or a target that cannot be read."""

    exit_code = 2


class ImpossibleError(EnvsolveError):
    """Nothing published fits: a machine that cannot exist, or a lock that does not fit this machine."""

    exit_code = 3


class VerificationError(EnvsolveError):
    """An environment was made and a check in it failed."""

    exit_code = 4


class InterruptedBySignalError(EnvsolveError):
    """A signal ended the work; the exit code is that of a shell: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""

    def __init__(self, signum: int, *, hint: str | None = None) -> None:
        import signal  # costs start-up time in every command

        super().__init__(f"interrupted by {signal.Signals(signum).name}", hint=hint)
        self.exit_code = 128 + signum


def interrupt_at_once(signum: int, frame: object) -> None:
    """Handle SIGINT before a command begins: an exception in the middle of an import may be lost, or show its lines."""
    import os

    os.write(2, b"envsolve: interrupted\n")
    os._exit(130)


def interrupt_once(signum: int, frame: object) -> None:
    """Handle SIGINT for the command line: raise KeyboardInterrupt, and ignore every later Ctrl-C.

    A second one would stop the clean-up that follows the first, or show as a traceback while the process ends.
    """
    import signal

    signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


class IndexUnavailableError(EnvsolveError):
    """A package index or the network failed, or ``--offline`` lacks what the cache does not hold."""

    exit_code = 5


#: The kinds of errors in JSON by their exit code; signals are ``interrupted``, all others ``failure``.
KINDS = {2: "usage", 3: "impossible", 4: "check-failed", 5: "index-unavailable"}
