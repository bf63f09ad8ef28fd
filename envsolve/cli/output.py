"""Where results and remarks go: results to stdout or a file, remarks to stderr."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from envsolve.errors import EnvsolveError, UsageError


@dataclass
class Settings:
    """What the user said of talking, once per process."""

    debug: bool = False
    quiet: bool = False
    verbose: bool = False


SETTINGS = Settings()


def remark(text: str) -> None:
    """Say something beside the result."""
    if not SETTINGS.quiet:
        print(text, file=sys.stderr)


def deliver(text: str, target: Path | None) -> None:
    """Print a result, or write it whole to a file: a failed write leaves what was there.

    Raises:
        EnvsolveError: The file cannot be written.
    """
    if not text.endswith("\n"):
        text += "\n"
    if target is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    if target.is_dir():
        raise UsageError(f"{target} is a folder", hint="name a file after -o")
    try:
        with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            scratch = Path(file.name)
            try:
                file.write(text)
                file.flush()
            except OSError:
                scratch.unlink(missing_ok=True)
                raise
        scratch.chmod(0o666 & ~_umask())
        scratch.replace(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise EnvsolveError(f"cannot write {target}: {reason}", hint="choose another place after -o") from error
    remark(f"written to {target}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
