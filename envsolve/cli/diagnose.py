"""``envsolve diagnose``: from an error text, a report or an environment to the cause and its fixes."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import envsolve
from envsolve.cli.options import Form, Machines, OutputFile, active_environment, argument, in_use, option, path
from envsolve.cli.output import SETTINGS, check_output, confirm, deliver_as, deliver_text, remark, text_width
from envsolve.errors import UsageError, VerificationError
from envsolve.system.files import is_there, open_regular
from envsolve.system.limits import LimitError

if TYPE_CHECKING:
    from envsolve.diagnose.model import Diagnoses
    from envsolve.machine.model import Machine
    from envsolve.protect.fix import Fix
    from envsolve.verify.report import Probe


def command(
    file: Annotated[
        str | None, argument(metavar="FILE", help="The error message, log or complete bug report. The same as --log.")
    ] = None,
    log: Annotated[
        str | None,
        option(
            "--log", metavar="FILE|-", help="The error message, log or complete bug report; - reads the standard input."
        ),
    ] = None,
    installed: Annotated[
        Path | None,
        path("--installed", metavar="FILE", help="Installed packages: pip freeze, pip list, conda list, or JSON."),
    ] = None,
    prefix: Annotated[Path | None, path("--prefix", metavar="DIR", help="An environment on this machine.")] = None,
    python: Annotated[
        Path | None, path("--python", metavar="EXE", help="The environment's interpreter, instead of --prefix.")
    ] = None,
    run: Annotated[
        bool, option("--run", help="Also run torch, the GPU and Triton in the environment, on this machine.")
    ] = False,
    time_limit: Annotated[
        float, option("--time-limit", metavar="SECONDS", help="Time limit for each step of --run.")
    ] = 60.0,
    fix: Annotated[bool, option("--fix", help="Show the smallest fix, and apply it after confirmation.")] = False,
    sure: Annotated[bool, option("--yes", "-y", help="Apply the fix without asking.")] = False,
    restore: Annotated[
        bool, option("--restore", help="Undo the last --fix: put back the packages that were installed before it.")
    ] = False,
    machines: Machines = Machines(),
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Name what is wrong, and what to do.

    Reads machine, versions and errors from a text, and the files of an environment (nothing in it is run
    without --run), and compares them with the catalogue. Options override the text. The active environment (or .venv)
    and this machine are also read, unless the text or the options are about another environment or machine.
    """
    prefix = _environment(prefix, python)
    given = _only(file, log)
    if given is not None and _is_text(given):
        log, piped = "the text of the command line", given
    else:
        log, piped = _text_named(given, elsewhere=prefix is not None or run or fix or restore)
    if log is None and prefix is None:
        hint = "give a FILE with the error text, pipe the text in, or give an environment: --prefix DIR"
        prefix = active_environment("nothing to diagnose", hint)
    if run and (prefix is None or fix or restore):
        raise UsageError(
            "--run requires an environment, and cannot be combined with --fix or --restore",
            hint="use: --prefix DIR --run",
        )
    if fix or restore:
        if prefix is None or log is not None or installed is not None or fix is restore:
            hint = "use only one of them, and only with --prefix DIR"
            raise UsageError("--fix and --restore change an environment, and do not read an error message", hint=hint)
        if restore:
            _restore(prefix, sure)
        else:
            check_output(form, output)
            _fix(prefix, machines.named(), sure)
        return
    check_output(form, output)
    _diagnose(log, piped, machines.named(), installed, prefix, time_limit if run else None, form, output)


def _own(text: str, name: str, other_place: object) -> Path | None:
    """The environment in use, unless something shows that the text comes from another one or another machine.

    Reports often come from elsewhere, and facts of two machines make a wrong answer: so what was read is printed.
    """
    from envsolve.diagnose.environment import elsewhere
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.known import detect

    prefix, _ = in_use()
    if prefix is None or other_place:
        return None
    try:
        other = elsewhere(text, prefix, detect(), Catalogue(), os.environ)
    except UsageError as error:
        other = error.message
    if other is not None:
        remark(f"{name} is explained without the environment {prefix} and this machine: {other}")
        meant = _named_prefix(text) or prefix
        remark(f"if the error comes from {meant} on this machine, add: --prefix {shlex.quote(str(meant))}")
        return None
    remark(f"{name} is explained with the environment {prefix} and this machine, because the text names no others")
    remark("if the error comes from another machine, describe that machine: --target 'GPU, driver VERSION'")
    return prefix


def _named_prefix(text: str) -> Path | None:
    """The environment on this machine whose files a text names; None if there is none, or several."""
    from envsolve.diagnose.environment import SITE_PACKAGES
    from envsolve.environment.layout import is_environment

    places = [Path(place) for place in SITE_PACKAGES.findall(text)]
    found = {place.parents[2] for place in places if len(place.parts) > 3 and is_environment(place.parents[2])}
    return found.pop() if len(found) == 1 else None


def _diagnose(
    log: str | None,
    piped: str,
    machines: tuple[Machine, ...] | None,
    installed: Path | None,
    prefix: Path | None,
    run_limit: float | None,
    form: str | None,
    output: Path | None,
) -> None:
    probes: tuple[Probe, ...] = ()
    if run_limit is not None and machines is not None:
        raise UsageError("--run works only on this machine", hint="leave out the options that describe another machine")
    listed = read_text(str(installed)) if installed else None
    text = piped or (read_text(log) if log else "")
    prefix = prefix or _own(text, "the standard input" if log == "-" else log or "", machines or installed)
    if prefix is not None and run_limit is not None:
        probes = _tried(prefix, run_limit)
    found = envsolve.diagnose(text, machines, installed=listed, prefix=prefix, probes=probes)
    deliver_as(form, found, lambda: _words(found, log), output)
    if output is not None:
        remark(f"causes: {', '.join(d.cause for d in found.diagnoses) or 'none known'}")


def _tried(prefix: Path, time_limit: float) -> tuple[Probe, ...]:
    remark(f"running torch, the GPU and Triton in {prefix}, each step for at most {time_limit:g} s")
    return envsolve.probe(prefix, time_limit=time_limit)


def _words(found: Diagnoses, log: str | None) -> str:
    from envsolve.diagnose.model import describe

    whole = log is None and not any(probe.failed for probe in found.probes)
    nothing = "No fault was found in this environment." if whole else "envsolve knows no cause for this error."
    return describe(found, nothing, text_width(sys.stdout))


def read_text(name: str) -> str:
    """Return the text of a log, or of the standard input for ``-``.

    Raises:
        UsageError: It cannot be read.
    """
    from envsolve.diagnose.report.text import read_log
    from envsolve.system.limits import LOG_BYTES, MIB

    try:
        if name == "-":
            if sys.stdin is None or sys.stdin.isatty():
                hint = "pipe the text in, or give a file name after --log"
                raise UsageError("there is no text on the standard input", hint=hint)
            text, size = read_log(sys.stdin.buffer)
        else:
            with open_regular(Path(name)) as file:
                text, size = read_log(file)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}", hint="give a text file") from error
    except LimitError as error:
        raise UsageError(
            str(error),
            hint="if the error is not explained, give only the part of the text with "
            "the error, for example the last few thousand lines",
        ) from error
    if size > LOG_BYTES:
        remark(f"the text has {size // MIB} MiB: only the first and the last {LOG_BYTES // 2 // MIB} MiB are read")
    return text


def _is_text(given: str) -> bool:
    """Whether a person pasted the error itself in place of the name of a file that has it."""
    return len(given.split()) > 3 and not is_there(Path(given))


def _only(file: str | None, log: str | None) -> str | None:
    if file is not None and log is not None:
        raise UsageError(f"{file} and --log both give the text", hint="give only one of them")
    return file if log is None else log


def _text_named(log: str | None, *, elsewhere: bool) -> tuple[str | None, str]:
    """Return the name of the text, and what was piped in if nothing is named here or elsewhere."""
    if log is not None or elsewhere or not _is_piped():
        return log, ""
    piped = read_text("-")
    return ("-" if piped.strip() else None), piped  # a service's empty pipe says nothing


def _environment(prefix: Path | None, python: Path | None) -> Path | None:
    if prefix is not None and python is not None:
        raise UsageError("--prefix and --python both give the environment", hint="give only one of them")
    if python is None:
        return prefix
    from envsolve.environment.layout import prefix_of

    return prefix_of(python)


def _is_piped() -> bool:
    """Whether the standard input is a pipe or a file; a service's /dev/null and a terminal are neither."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _fix(prefix: Path, machines: tuple[Machine, ...] | None, sure: bool) -> None:
    """Show the smallest fix of an environment, ask, apply it, and print the result.

    Raises:
        UsageError: There is no terminal to ask on.
        VerificationError: Something is still wrong.
    """
    found = envsolve.find_fix(prefix, machines)
    if found is None:
        deliver_text("No fault was found in this environment.", None)
        return
    deliver_text(_shown(found), None)
    if not sure:
        confirm()
    done = envsolve.apply_fix(found, machines, progress=_verbosely)
    remark(f"{found.cause} is fixed; to go back: envsolve diagnose --prefix {prefix} --restore")
    if done.remaining:
        others = ", ".join(diagnosis.cause for diagnosis in done.remaining)
        raise VerificationError(
            f"the environment still has {others}", hint=f"see: envsolve diagnose --prefix {prefix}; or run --fix again"
        )


def _restore(prefix: Path, sure: bool) -> None:
    """Show the commands that put back what was installed before the last fix, ask, and run them."""

    def shown(commands: tuple[str, ...]) -> None:
        deliver_text(
            "\n".join(["To restore the environment, envsolve runs:", *(f"  {line}" for line in commands)]), None
        )
        if not sure:
            confirm()

    names = envsolve.restore(prefix, confirm=shown, progress=_verbosely)
    deliver_text(f"As before: {', '.join(names)}" if names else "The environment is restored.", None)


def _shown(found: Fix) -> str:
    from envsolve.packages.commands import changes_in_words

    changes = changes_in_words(found.changes) or "envsolve does not have to install or remove any package"
    return "\n".join([f"{found.cause}: {found.remedy}", f"  {found.command}", f"In {found.prefix}:", f"  {changes}"])


def _verbosely(line: str) -> None:
    if SETTINGS.verbose:
        remark(line)
