"""``envsolve diagnose``: from an error text or a report to the cause and what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from envsolve import api
from envsolve.cli import options
from envsolve.cli.output import check_target, deliver, remark
from envsolve.errors import UsageError
from envsolve.files import read_regular

#: No build log is larger; a larger text is most often the wrong file.
_MAX_BYTES = 64 * 2**20


def command(
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="FILE|-", help="The error, log or whole report; - reads the standard input."),
    ] = None,
    installed: Annotated[
        Path | None,
        typer.Option(
            "--installed", metavar="FILE", help="What is installed: pip freeze, pip list, conda list, or JSON."
        ),
    ] = None,
    machine: options.MachineFiles = None,
    target: options.TargetText = None,
    gpu: options.GpuNames = None,
    driver: options.DriverVersion = None,
    platform: options.PlatformName = None,
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="text or json.")] = "text",
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write it to FILE.")] = None,
) -> None:
    """Name the cause of an error, and what to do.

    Reads machine, versions and errors out of a text, and weighs them against the catalogue. Options win over the text;
    the host that runs the command is not looked at, since reports come from other machines.
    """
    if log is None:
        raise UsageError(
            "what shall be diagnosed?", hint="give --log FILE, or --log - and the text on the standard input"
        )
    check_target(output)
    described = bool(machine or target or gpu or driver or platform)
    named = options.machines(machine, target, gpu, driver, platform) if described else None
    listed = _read(str(installed)).decode("utf-8", "replace") if installed else None
    found = api.diagnose(_read(log), named, installed=listed)
    if form == "json":
        from envsolve.jsontext import dump

        deliver(dump(found), output)
    else:
        from envsolve.diagnose.describe import describe

        deliver(describe(found), output)
    if output is not None:
        remark(f"causes: {', '.join(d.cause for d in found.diagnoses) or 'none known'}")


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
