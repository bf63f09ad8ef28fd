"""``envsolve diagnose``: from an error text, a report or an environment to the cause and what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import envsolve
from envsolve.cli import _mending, options
from envsolve.cli.declare import option
from envsolve.cli.output import check_target, deliver_as, remark
from envsolve.errors import UsageError
from envsolve.system.files import read_regular

if TYPE_CHECKING:
    from envsolve.diagnose.model import Diagnoses
    from envsolve.verify.report import Probe


#: No build log is larger; a larger text is most often the wrong file.
_MAX_BYTES = 64 * 2**20


def command(
    log: Annotated[
        str | None,
        option("--log", metavar="FILE|-", help="The error, log or whole report; - reads the standard input."),
    ] = None,
    installed: Annotated[
        Path | None,
        option("--installed", metavar="FILE", help="What is installed: pip freeze, pip list, conda list, or JSON."),
    ] = None,
    prefix: Annotated[
        Path | None, option("--prefix", metavar="DIR", help="An environment on this computer, to be read.")
    ] = None,
    python: Annotated[
        Path | None, option("--python", metavar="EXE", help="Its interpreter, in place of --prefix.")
    ] = None,
    run: Annotated[
        bool, option("--run", help="Then try torch, CUDA and Triton in its own interpreter, on this machine.")
    ] = False,
    time_limit: Annotated[float, option("--time-limit", metavar="SECONDS", help="For each step of --run.")] = 60.0,
    fix: Annotated[
        bool, option("--fix", help="Show the least remedy of the environment and, confirmed, carry it out.")
    ] = False,
    sure: Annotated[bool, option("--yes", "-y", help="Carry it out without asking.")] = False,
    restore: Annotated[
        bool, option("--restore", help="Put back the packages that were there before the last --fix.")
    ] = False,
    machine: options.MachineFiles = None,
    target: options.TargetTexts = None,
    gpu: options.GpuNames = None,
    driver: options.DriverVersion = None,
    platform: options.PlatformName = None,
    form: options.Form = "text",
    output: options.OutputFile = None,
) -> None:
    """Name what is wrong, and what to do.

    Reads machine, versions and errors out of a text, and an environment's files without running anything of it unless
    --run says so, and weighs them against the catalogue. Options win over the text; this host counts only where an
    environment is named, since reports come from other machines.
    """
    if prefix is not None and python is not None:
        raise UsageError("--prefix and --python both name the environment", hint="give one of them")
    if python is not None:
        from envsolve.environment.layout import prefix_of

        prefix = prefix_of(python)
    if log is None and prefix is None:
        raise UsageError(
            "what shall be diagnosed?",
            hint="give --log FILE, or --log - and the text on the standard input, or --prefix DIR for an environment",
        )
    if (fix or restore) and (prefix is None or log is not None or installed is not None or fix is restore):
        raise UsageError("--fix and --restore change one environment", hint="give one of them, with --prefix DIR alone")
    if run and (prefix is None or fix or restore):
        raise UsageError("--run tries an environment on this computer", hint="name it: --prefix DIR --run")
    if restore and prefix is not None:
        _mending.restore(prefix)
        return
    check_target(output)
    named = options.machines_named(machine, target, gpu, driver, platform)
    if run and named is not None:
        raise UsageError("--run tries the environment on this machine", hint="leave out what describes another")
    if fix and prefix is not None:
        _mending.fix(prefix, named, sure)
        return
    listed = _read(str(installed)).decode("utf-8", "replace") if installed else None
    text = _read(log) if log else ""
    probes = _tried(prefix, time_limit) if run and prefix is not None else ()
    found = envsolve.diagnose(text, named, installed=listed, prefix=prefix, probes=probes)
    deliver_as(form, found, lambda: _words(found, log), output)
    if output is not None:
        remark(f"causes: {', '.join(d.cause for d in found.diagnoses) or 'none known'}")


def _tried(prefix: Path, time_limit: float) -> tuple[Probe, ...]:
    remark(f"trying {prefix} in its own interpreter, each step for at most {time_limit:g} s")
    return envsolve.probe(prefix, time_limit=time_limit)


def _words(found: Diagnoses, log: str | None) -> str:
    from envsolve.diagnose.model import describe

    if log is None and not any(probe.failed for probe in found.probes):
        return describe(found, "Nothing is known to be wrong with this environment.")
    return describe(found, "No cause is known for this.")


def _read(name: str) -> bytes:
    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                "nothing comes in on the standard input", hint="pipe the text in, or name a file after --log"
            )
        data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise UsageError("the text is too large", hint="give the part with the error: the last few thousand lines")
        return data
    try:
        return read_regular(Path(name), _MAX_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}", hint="name a text file") from error
