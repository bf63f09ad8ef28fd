"""``envsolve check-dockerfile``: what in a Dockerfile does not work on the target machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import envsolve
from envsolve.cli.options import Form, Machines, OutputFile, path, path_argument
from envsolve.cli.output import check_output, deliver_as

_FOUND = 4


def command(
    dockerfile: Annotated[Path, path_argument(metavar="DOCKERFILE", help="The Dockerfile to check.")] = Path(
        "Dockerfile"
    ),
    machines: Machines = Machines(),
    context: Annotated[
        Path | None,
        path("--context", metavar="DIR", help="The build context (default: the directory of the Dockerfile)."),
    ] = None,
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Check if a Dockerfile works on target machines.

    Checks its images, the torch builds that it installs and the code that it compiles. Nothing is run or downloaded.
    Exit code 4 if something will fail.
    """
    from envsolve.dockerfile.model import describe

    check_output(form, output)
    report = envsolve.check_dockerfile(dockerfile, machines.named_or_host(), context)
    deliver_as(form, report, lambda: describe(report, str(dockerfile)), output)
    if any(finding.level == "error" for finding in report.findings):
        raise typer.Exit(_FOUND)
