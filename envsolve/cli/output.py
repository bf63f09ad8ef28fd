"""Where results and remarks go: results to stdout or a file, remarks to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from envsolve.errors import EnvsolveError, UsageError
from envsolve.system.files import is_file, is_folder, is_there, real_path, replace_file
from envsolve.system.limits import printable
from envsolve.system.progress import clear, phase

#: What ``-o`` means by a dash.
STDOUT = Path("-")
#: Suffixes of files that hold text for people.
TEXT_SUFFIXES = (".txt", ".md", ".log", ".out")


class Settings:
    """The user's choice of how much to print, and the words of the command line, once per process."""

    def __init__(self) -> None:
        self.debug = False
        self.words: list[str] = []
        self.quiet = False
        self.verbose = False


SETTINGS = Settings()


def remark(text: str) -> None:
    """Say something beside the result."""
    if not SETTINGS.quiet and sys.stderr is not None:
        clear()
        print(printable(text), file=sys.stderr)


def check_target(target: Path | None, option: str = "-o") -> None:
    """Refuse a place that cannot be a file, before work is done for it.

    Raises:
        UsageError: It is a directory, or its directory does not exist.
    """
    if target is not None and is_folder(target):
        raise UsageError(f"{target} is a folder", hint=f"name a file after {option}")
    if target is not None and not is_folder(target.parent):
        raise UsageError(f"there is no directory {target.parent}", hint=f"make it, or name another file after {option}")


def deliver(text: str, target: Path | None) -> None:
    """Print a result, as ``-`` has it, too, or write it whole to a file: a failed write leaves what was there.

    Raises:
        UsageError: The place cannot be a file.
        EnvsolveError: Writing failed.
    """
    if not text.endswith("\n"):
        text += "\n"
    if target is None or target == STDOUT:
        _print(text)
        return
    check_target(target)
    try:
        if is_there(target) and not is_file(target):
            # A terminal, a pipe, /dev/null: there is nothing to lose, and it must stay what it is.
            target.write_text(text, encoding="utf-8")
        else:
            replace_file(real_path(target), text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise EnvsolveError(f"cannot write {target}: {reason}", hint="choose another place after -o") from error
    remark(f"written to {target}")


def form_of(form: str | None, target: Path | None) -> str:
    """Return the format of an output: the named one, otherwise that of the file's suffix.

    Raises:
        UsageError: The suffix is of neither text nor JSON.
    """
    suffix = target.suffix.lower() if target is not None and target != STDOUT and not is_there(target) else ""
    if form is None and suffix not in ("", ".json", *TEXT_SUFFIXES):
        hint = "name a file .json or .txt, or say --format text or json"
        raise UsageError(f"-o {target}: no format has files named {suffix}", hint=hint)
    is_json = target is not None and target.suffix.lower() == ".json"
    return form or ("json" if is_json else "text")


def deliver_as(form: str | None, value: object, words: Callable[[], str], target: Path | None) -> None:
    """Deliver a value as JSON, or in words.

    Args:
        form: ``json`` or ``text``; None for that of the suffix of the target.
        value: The result.
        words: Renders it as text for people, if requested.
        target: The file; None or ``-`` is the standard output.

    Raises:
        EnvsolveError: As :func:`deliver`.
    """
    if form_of(form, target) == "json":
        from envsolve.system.files import dump

        deliver(dump(value), target)
    else:
        deliver(words(), target)


def print_styled(*parts: object) -> None:
    """Print on a terminal with colour, unless ``NO_COLOR`` or ``TERM=dumb`` forbids it; strings are taken as they are.

    Args:
        parts: Strings, and what rich renders.
    """
    from rich.console import Console

    phase("")
    console = Console()
    for part in parts:
        text = printable(part) if isinstance(part, str) else part
        console.print(text, markup=False, highlight=False, emoji=False)


def _print(text: str) -> None:
    if sys.stdout is None:
        raise EnvsolveError("the standard output is closed", hint="name a file with -o")
    phase("")
    try:
        sys.stdout.write(printable(text))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What could not be written is still in the buffer, and would fail once more when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = error.strerror or str(error)
        raise EnvsolveError(f"cannot write to the standard output: {reason}", hint="name a file with -o") from error
