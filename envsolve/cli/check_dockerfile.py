"""``envsolve check-dockerfile``: what in a Dockerfile will not work on the machines that it is meant for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import click

import envsolve
from envsolve.cli import options
from envsolve.cli.declare import argument, option
from envsolve.cli.output import deliver

_FOUND = 4


def command(
    path: Annotated[Path, argument(metavar="DOCKERFILE", help="The file.")] = Path("Dockerfile"),
    machine: options.MachineFiles = None,
    target: options.TargetTexts = None,
    gpu: options.GpuNames = None,
    driver: options.DriverVersion = None,
    platform: options.PlatformName = None,
    context: Annotated[
        Path | None,
        option("--context", metavar="DIR", help="The folder it is built from; the file's own if none."),
    ] = None,
    form: Annotated[Literal["text", "json"], option("--format", help="text or json.")] = "text",
    output: options.OutputFile = None,
) -> None:
    """Check a Dockerfile for the machines it is meant for.

    Its images, the builds of torch that its installs take, the code that it compiles. Nothing is run or downloaded.
    Exit 4 where something will fail.
    """
    report = envsolve.check_dockerfile(path, options.machines(machine, target, gpu, driver, platform), context)
    if form == "json":
        from envsolve.system.files import dump

        deliver(dump(report), output)
    else:
        from envsolve.dockerfile.model import describe

        deliver(describe(report, str(path)), output)
    if any(finding.level == "error" for finding in report.findings):
        raise click.exceptions.Exit(_FOUND)
