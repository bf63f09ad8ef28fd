"""``envsolve verify``: an environment proved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from envsolve import api
from envsolve.cli.output import deliver
from envsolve.errors import UsageError, VerificationError


def command(
    prefix: Annotated[Path | None, typer.Option("--prefix", metavar="DIR", help="The environment.")] = None,
    python: Annotated[Path | None, typer.Option("--python", metavar="EXE", help="Its interpreter.")] = None,
    compile_only: Annotated[bool, typer.Option("--compile-only", help="Compile for --gpu; needs no GPU.")] = False,
    gpu: Annotated[list[str] | None, typer.Option("--gpu", metavar="CC", help="Compile for this card.")] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", metavar="SECONDS", help="For each check.")] = 120.0,
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="text or json.")] = "text",
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write it to FILE.")] = None,
) -> None:
    """Compile and run kernels in an environment, and compare what they compute."""
    from envsolve.verify.interpreter import interpreter_of

    if (prefix is None) == (python is None):
        raise UsageError("which environment?", hint="give --prefix DIR or --python EXE")
    if compile_only != bool(gpu):
        raise UsageError("--compile-only and --gpu CC go together", hint="for the GPUs of this machine give neither")
    executable = interpreter_of(prefix) if prefix else python
    assert executable is not None
    if gpu:
        report = api.verify_compiles(executable, gpu, time_limit=time_limit)
    else:
        report = api.verify(executable, time_limit=time_limit)
    if form == "json":
        from envsolve.jsontext import dump

        deliver(dump(report), output)
    else:
        from envsolve.verify.describe import describe

        deliver(describe(report), output)
    if not report.passed:
        raise typer.Exit(VerificationError.exit_code)
