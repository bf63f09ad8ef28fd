"""Failures of an install, and the meaning of a package manager's last lines."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from envsolve.errors import EnvsolveError, IndexUnavailableError

_SHOWN_LINES = 15
# What pip ("ERROR: ...") and uv ("error: ...", "  \u00d7 ...") begin a complaint with.
_COMPLAINT = re.compile(r"\s*(?:error:|\u00d7)\s*(.+)", re.IGNORECASE)
_OBJECT = re.compile(r"<([\w.]+)(?: object)? at 0x[0-9a-f]+>")
_STAGED = re.compile(r"(?:/[^\s/'\"]+)*/\.[^\s/'\"]+\.envsolve/(?:env/|tmp/)?")


class InstallError(EnvsolveError):
    """The environment could not be made: disk full, a source that does not build, a broken interpreter."""


class DamagedFilesError(InstallError):
    """A package manager's installed or cached files differ from the packages' lists of files."""


@dataclass(frozen=True, slots=True)
class _Sign:
    """A phrase in a package manager's output, and the failure that it means."""

    pattern: re.Pattern[str]
    error: type[EnvsolveError]
    message: str
    hint: str


def _sign(pattern: str, error: type[EnvsolveError], message: str, hint: str) -> _Sign:
    return _Sign(re.compile(pattern, re.IGNORECASE | re.MULTILINE), error, message, hint)


# The first that matches wins: what is certain stands above what may be a consequence, and a build above all that its
# compiler may print. Read from what pip 23-26 and uv 0.5-0.13 print; a group of a pattern goes into the message.
_SIGNS = (
    _sign(
        r"\[Errno (28|27|122)\]|\(os error (28|27|122)\)|no space left on device|disk quota exceeded|^file too large$",
        InstallError,
        "the disk is full, or a limit on file sizes was reached",
        "free some space (or raise the quota) and run the same command again",
    ),
    _sign(
        r"failed to initialize cache at `(?P<what>[^`]+)`",
        InstallError,
        "the installer's cache cannot be used: {what}",
        "choose a directory that you can write to, for example with UV_CACHE_DIR",
    ),
    _sign(
        r"build dependencies.* did not run successfully|failed to (resolve|install) requirements from `build-system",
        IndexUnavailableError,
        "the build requirements of a source distribution could not be installed",
        "check that the index in your pip or uv configuration has these packages",
    ),
    _sign(
        r"^\s*(?:\S+:\d+:\d+: )?fatal error: (?P<what>\S+): No such file or directory",
        InstallError,
        "a source distribution did not build: the header {what} is missing",
        "install the package that contains this header (for cuda.h a CUDA toolkit), or plan a version that is "
        "published as a wheel",
    ),
    _sign(
        r"^\s*(error:|\u00d7) failed to build|(error: |^)(failed-wheel-build|metadata-generation-failed)|"
        r"error: subprocess-exited-with-error|the build backend returned an error|ERROR: Failed building wheel for",
        InstallError,
        "a source distribution did not build",
        "see the output of the build above; a compiler or a header may be missing",
    ),
    _sign(
        r"(cause: |\u25b6 )hash mismatch for|^\s*ERROR: THESE PACKAGES DO NOT MATCH THE HASHES|^THESE PACKAGES DO NOT|"
        r"hash mismatch when |^caused by: Invalid checksum$",
        IndexUnavailableError,
        "a downloaded file differs from the planned one: its hash is different",
        "a mirror or proxy may serve another file; plan again, or ask the operator of the index",
    ),
    _sign(
        r"size mismatch when ",
        IndexUnavailableError,
        "a file differs from the planned one: its size is different",
        "the channel may have replaced the file; plan again",
    ),
    _sign(
        r"HTTP error (401|403)\b|HTTP status client error \((401|403)\b",
        IndexUnavailableError,
        "the index refuses access",
        "set credentials in netrc, keyring, or your pip or uv configuration",
    ),
    _sign(
        r"HTTP error (404|410)\b|HTTP status client error \((404|410)\b|distribution not found at: |"
        r"OSError: \[Errno 2\] No such file or directory: '[^']+\.(whl|tar\.gz|zip)'",
        IndexUnavailableError,
        "the index no longer has a planned file",
        "plan again, to choose files that are still published",
    ),
    _sign(
        r"failed to read directory `\S*/archive-v\d+/|(cause: |\u25b6 )the wheel is invalid|"
        r"missing (a )?(METADATA|RECORD|WHEEL) file|"
        r"ERROR: .* has an invalid wheel|BadZipFile: |ERROR: Wheel '.*' (located at .* )?is invalid",
        DamagedFilesError,
        "the files of a package are damaged, even without the cache",
        "plan again, to choose another file",
    ),
    _sign(
        r"error: (connection-failed|incomplete-download|ssl-verification-failed|connection-timeout|proxy-connection-)|"
        r"(error: |\u00d7 |\u25b6 )failed to (fetch|download)|: error sending request|"
        r"error reading a body from connection|Max retries exceeded with url|"
        r"too many \d+ error responses|HTTP error \d+ while|Read timed out|"
        r"HTTP status server error|ERROR: Could not install packages due to an OSError: HTTPS?ConnectionPool",
        IndexUnavailableError,
        "a planned file could not be downloaded",
        "check the network, proxy and certificate settings, then run the same command again",
    ),
)


def explained(manager: str, code: int | None, output: Sequence[str]) -> EnvsolveError:
    """The failure that a package manager's output means, with its last lines.

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
        found = sign.pattern.search(text)
        if found:
            return sign.error(f"{sign.message.format(**found.groupdict())}; {manager} said:\n{shown}", hint=sign.hint)
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"failed with exit status {code}"
    complaint = next((match[1] for line in output if (match := _COMPLAINT.match(line))), None)
    lead = f"{manager} {how}: {complaint}" if complaint else f"{manager} {how}"
    return InstallError(
        f"{lead}\n{manager} said:\n{shown}", hint="run the command again with --verbose to see the complete output"
    )


def _plain(line: str) -> str:
    """A line without what means nothing to the reader: addresses of objects, and the staging directory."""
    return _STAGED.sub("", _OBJECT.sub(r"<\1>", line))


# Progress of an install: a stream of steps.


Stage = Literal["wait", "prepare", "packages", "output", "download", "verify", "swap", "done"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is happening now.

    Attributes:
        stage: The current step of the install; ``output`` is a raw line of the package manager, ``download`` one that
            it draws over later, with the bytes that came of each file.
        text: One line for a person.
        size: Bytes that this step downloads at most; None if that is not known.
    """

    stage: Stage
    text: str
    size: int | None = None


Progress = Callable[[Step], None]


def silent(step: Step) -> None:
    """Show nothing."""
