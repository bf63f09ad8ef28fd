"""Failures of installing, and what a package manager's last words mean."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from envsolve.errors import EnvsolveError, IndexUnavailableError

_SHOWN_LINES = 15
# What pip ("ERROR: ...") and uv ("error: ...", "  \u00d7 ...") begin a complaint with.
_COMPLAINT = re.compile(r"\s*(?:error:|\u00d7)\s*(.+)", re.IGNORECASE)
_OBJECT = re.compile(r"<([\w.]+)(?: object)? at 0x[0-9a-f]+>")
_STAGED = re.compile(r"(?:/[^\s/'\"]+)*/\.[^\s/'\"]+\.envsolve/(?:env/|tmp/)?")


class InstallError(EnvsolveError):
    """The environment could not be made: disk full, a source that does not build, a broken interpreter."""


class InstallInterruptedError(EnvsolveError):
    """A signal ended the install; its children are dead and its staging folder is gone.

    The exit code is the shell's for that signal: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(
            f"interrupted by {signal.Signals(signum).name}",
            hint="nothing was changed unless the install had already finished; run the same command again",
        )
        self.exit_code = 128 + signum


@dataclass(frozen=True, slots=True)
class _Sign:
    """A phrase in a package manager's output, and the failure that it stands for."""

    pattern: re.Pattern[str]
    error: type[EnvsolveError]
    message: str
    hint: str


def _sign(pattern: str, error: type[EnvsolveError], message: str, hint: str) -> _Sign:
    return _Sign(re.compile(pattern, re.IGNORECASE), error, message, hint)


# The first that matches wins: what is certain stands above what may be a consequence. Read from pip 23-26, uv 0.5-0.13.
_SIGNS = (
    _sign(
        r"no space left on device|disk quota exceeded|file too large|os error (28|27|122)\b",
        InstallError,
        "the disk is full, or a limit on file sizes was met",
        "make room (or raise the quota) and run the same command again",
    ),
    _sign(
        r"hash mismatch|do not match the hashes",
        IndexUnavailableError,
        "a downloaded file is not the one that was planned: its hash differs",
        "a mirror or proxy may serve another file; plan again, or ask who runs the index",
    ),
    _sign(
        r"\b(401|403)\b.*(unauthorized|forbidden|client error|error)|HTTP error (401|403)",
        IndexUnavailableError,
        "the index refuses access",
        "give credentials through netrc, keyring, or your pip or uv configuration",
    ),
    _sign(
        r"\b(404|410)\b",
        IndexUnavailableError,
        "the index no longer has a planned file",
        "plan again, so that files which are still published are chosen",
    ),
    _sign(
        r"failed to build|build backend|failed-wheel-build|metadata-generation-failed|subprocess-exited-with-error",
        InstallError,
        "a source distribution did not build",
        "see the build's own words above; a compiler or a header may be missing",
    ),
    _sign(
        r"failed to (fetch|download|connect)|connection-failed|connection refused|timed out|dns error|"
        r"name resolution|ssl|certificate|could not fetch|error sending request",
        IndexUnavailableError,
        "a planned file could not be downloaded",
        "check the network, proxy and certificate settings, then run the same command again",
    ),
)


def explained(manager: str, code: int, output: Sequence[str]) -> EnvsolveError:
    """The failure that a package manager's output stands for, with its last lines.

    Args:
        manager: ``pip`` or ``uv``, for the message.
        code: Its exit status; negative where a signal ended it.
        output: Its last lines.
    """
    if code == -signal.SIGXFSZ:
        output = (*output, "file too large")
    output = [_plain(line) for line in output]
    shown = "\n".join(f"  {line}" for line in output[-_SHOWN_LINES:])
    text = "\n".join(output)
    for sign in _SIGNS:
        if sign.pattern.search(text):
            return sign.error(f"{sign.message}; {manager} said:\n{shown}", hint=sign.hint)
    how = f"was killed by signal {-code}" if code < 0 else f"failed with exit status {code}"
    complaint = next((match[1] for line in output if (match := _COMPLAINT.match(line))), None)
    lead = f"{manager} {how}: {complaint}" if complaint else f"{manager} {how}"
    return InstallError(f"{lead}\n{manager} said:\n{shown}", hint="run again with --verbose to see all of it")


def _plain(line: str) -> str:
    """A line without what means nothing to its reader: addresses of objects, and the folder that is gone by then."""
    return _STAGED.sub("", _OBJECT.sub(r"<\1>", line))
