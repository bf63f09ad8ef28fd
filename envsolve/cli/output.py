"""Where results and remarks go: results to stdout or a file, remarks to stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

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
        #: The words of the command line, without these settings.
        self.words: list[str] = []
        #: Whether something was written to the standard output.
        self.delivered = False
        self.quiet = False
        self.verbose = False


SETTINGS = Settings()


def remark(text: str) -> None:
    """Print a remark, apart from the result."""
    if not SETTINGS.quiet:
        say(text)


def say(text: str) -> None:
    """Print a message to stderr; on a terminal wrapped at its width, and with colour if it is an error."""
    if sys.stderr is None:
        return
    clear()
    text = printable(text)
    if not sys.stderr.isatty():
        print(text, file=sys.stderr)
        return
    width = _columns(sys.stderr)
    lines = [part for line in text.splitlines() for part in _wrapped(line, width)]
    if lines and lines[0].startswith(_ERROR) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        # By hand: rich takes a tenth of a second to import. The stream escapes what it does not get as a command.
        getattr(sys.stderr, "command", sys.stderr.write)(f"\x1b[1;31m{_ERROR}\x1b[0m")
        lines[0] = lines[0].removeprefix(_ERROR)
    print("\n".join(lines), file=sys.stderr)


def confirm() -> None:
    """Ask whether to continue, and abort if not.

    Raises:
        UsageError: Confirmation requires a terminal.
    """
    import typer  # only a command that asks pays for it

    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "nothing was changed, because there is no terminal to ask for confirmation", hint="add --yes to go ahead"
        )
    phase("")
    typer.confirm("Go ahead?", abort=True, err=True)


def check_target(target: Path | None, option: str = "-o") -> None:
    """Refuse an output path that cannot be a file, before any work is done.

    Raises:
        UsageError: It is a directory, or its directory does not exist.
    """
    if target is not None and is_folder(target):
        raise UsageError(f"{target} is a directory", hint=f"give a file name after {option}")
    if target is not None and not is_folder(target.parent):
        raise UsageError(
            f"there is no directory {target.parent}", hint=f"create it, or give another file after {option}"
        )


def check_output(form: str | None, target: Path | None) -> None:
    """Refuse an unusable output path or a suffix without a format, before any work is done.

    Raises:
        UsageError: As :func:`check_target` and :func:`form_of`.
    """
    check_target(target)
    form_of(form, target)


def deliver(text: str, target: Path | None, *, commands: bool = False) -> None:
    """Print a result, or write it to a file; a failed write leaves the old file in place.

    Args:
        text: The result.
        target: The file; None or ``-`` is the standard output.
        commands: As in :func:`envsolve.system.limits.printable`.

    Raises:
        UsageError: The place cannot be a file.
        EnvsolveError: Writing failed.
    """
    if not text.endswith("\n"):
        text += "\n"
    if target is None or target == STDOUT:
        _write(printable(text, commands=commands))
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
        raise EnvsolveError(f"cannot write {target}: {reason}", hint="choose another place with -o") from error
    remark(f"written to {target}")


def form_of(form: str | None, target: Path | None) -> str:
    """Return the format of an output: the named one, otherwise that of the file's suffix.

    Raises:
        UsageError: The suffix is of neither text nor JSON.
    """
    suffix = target.suffix.lower() if target is not None and target != STDOUT and not is_there(target) else ""
    if form is None and suffix not in ("", ".json", *TEXT_SUFFIXES):
        hint = "use a file name that ends in .json or .txt, or add --format text or json"
        raise UsageError(f"-o {target}: there is no output format for files with the suffix {suffix}", hint=hint)
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
        deliver_text(words(), target)


def deliver_text(text: str, target: Path | None) -> None:
    """Deliver text for people: as :func:`deliver`, and on a terminal with colour, wrapped at its width.

    Commands are not broken into lines, so that they can be copied.
    """
    if target is None and sys.stdout is not None and (sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
        from rich.text import Text

        lines = []
        width = _columns(sys.stdout)
        for whole in printable(text).splitlines():
            # What is dim is dim to its end, however many lines of the terminal that takes.
            parts = [Text(part, style="dim" if _DIM.match(whole) else "") for part in _wrapped(whole, width)]
            for part in parts:
                for pattern, style in _STYLES.items():
                    part.highlight_regex(pattern, style)
            lines += parts
        print_styled(*lines)
    else:
        deliver(text, target)


#: Words of texts for people, and their styles. The first of a pattern's lines are labels, the last are marks.
_STYLES = {
    r"^(Nothing fits|Fail\w*|fail|does not run)\b": "bold red",
    r"^(Warning|unknown)\b": "yellow",
    r"^pass\b": "green",
    r"^[A-Z][a-z]+(?= {2,}\S)": "bold",
    r"\b(native|family)\b": "green",
    r"\b(ptx|possible)\b": "yellow",
    r"\bdoes not run\b|\(certain\)|^[a-z]+(-[a-z]+)+(?= {2}\()": "bold",
    r"^ *(Evidence|What to do[^:]*|Checked and ruled out):$": "bold",
    r"(?<=^ {6})(pip|uv|conda|mamba|pixi|envsolve|python|export|apt-get|docker)\b.*": "cyan",
    r"(?<=^Next {6})envsolve .*|(?<=^ {10})envsolve .*|(?<=^Or {8})pip .*": "cyan",
    r" \[(documented|measured|[a-z]+(-[a-z]+)+)\]$": "dim",
}
_DIM = re.compile(r"skip\b|Facts ")
# What a line begins with: a label, a mark or a number. Its other lines are indented to the text after that.
_LEAD = re.compile(r"\s*(?:[A-Z][a-z]+ {2,}|(?:pass|fail|skip) {2}|[-+?] |\d+\. )?")
_PROGRAMS = r"(?:[A-Z_]+=\S+ )*(?:pip|uv|conda|mamba|pixi|envsolve|python3?|export|sudo|apt-get|docker|git|curl|make)\b"
# Commands: a paragraph of their own, or what stands after the label of the next step.
_VERBATIM = re.compile(rf" {{4,8}}\S|(?:Next {{6}}|Or {{8}}|Or {{4,7}}| {{10}}){_PROGRAMS}")
# A command at the end of a sentence. One in its middle is wrapped with the sentence.
_ENDING = re.compile(rf"(?P<prose>(?!envsolve:).*?:) (?P<command>{_PROGRAMS} (?:(?!, | \(|; ).)+)$")
_ERROR = "envsolve:"


def text_width(stream: TextIO | None) -> int:
    """The width for paragraphs: a terminal's, or that of text that goes to a file or a pipe."""
    from envsolve.diagnose.model import WIDTH

    return _columns(stream) if stream is not None and stream.isatty() else WIDTH


def _columns(stream: TextIO) -> int:
    """The width of the terminal that a stream writes to: ``COLUMNS``, otherwise its own, otherwise 80."""
    try:
        return max(int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns), 40)
    except (OSError, ValueError):
        return 80


def _wrapped(line: str, width: int) -> list[str]:
    """A line as lines of at most ``width`` characters; a command stays in one piece, so that it can be copied."""
    import textwrap

    lead = _LEAD.match(line)
    if len(line) <= width or _VERBATIM.match(line) or lead is None:
        return [line]
    # A sentence that begins a little indented needs more, so that its second line does not look like the next one;
    # so does an error, whose advice begins at the second column.
    little = len(lead[0]) <= 2 and not lead[0].strip()
    indent = " " * (4 if line.startswith(_ERROR) else len(lead[0]) + 2 if little else len(lead[0]))
    if (found := _ENDING.match(line)) and len(indent) + len(found["command"]) <= 2 * width:
        return [*_wrapped(found["prose"], width), f"{indent}  {found['command']}"]
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )


def print_styled(*parts: object) -> None:
    """Print on a terminal with colour, unless ``NO_COLOR`` or ``TERM=dumb`` forbids it; strings are taken as they are.

    Args:
        parts: Strings, and what rich renders.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console()
    # Not by the console itself, which ends the process in its own way if the output is closed.
    with console.capture() as captured:
        for part in parts:
            text = printable(part) if isinstance(part, str) else part
            # Lines are wrapped already; a longer one is a command, which the terminal itself wraps.
            console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=isinstance(part, Text))
    _write(captured.get())


def _write(text: str) -> None:
    if sys.stdout is None:
        raise EnvsolveError("the standard output is closed", hint="write to a file with -o")
    phase("")
    SETTINGS.delivered = True
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What could not be written is still in the buffer, and would fail once more when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = error.strerror or str(error)
        raise EnvsolveError(f"cannot write to the standard output: {reason}", hint="write to a file with -o") from error
