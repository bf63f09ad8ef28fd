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
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", metavar="NAME|CC", help="Compile for this card; repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CHECK", help="Run this check alone; repeatable.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only what shows the most in the least time.")] = False,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="A plan's JSON: hold what is seen against it.")
    ] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", metavar="SECONDS", help="For each check.")] = 120.0,
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="text or json.")] = "text",
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write it to FILE.")] = None,
) -> None:
    """Prove an environment.

    Compiles and runs kernels in it and compares what they compute.
    """
    from envsolve.verify.interpreter import interpreter_of

    if (prefix is None) == (python is None):
        raise UsageError("which environment?", hint="give --prefix DIR or --python EXE")
    if gpu and not compile_only:
        raise UsageError(
            "--gpu names cards to compile for, without running anything",
            hint="add --compile-only; leave --gpu out to run on the GPUs of this machine",
        )
    if compile_only and not gpu:
        raise UsageError(
            "--compile-only: for which card?", hint="add --gpu, with a name or --gpu 9.0; it may be repeated"
        )
    if compile_only and (quick or plan):
        raise UsageError("--quick and --plan are for checks that run on a GPU", hint="leave out --compile-only")
    executable = interpreter_of(prefix) if prefix else python
    assert executable is not None
    if gpu:
        report = api.verify_compiles(executable, gpu, time_limit=time_limit, only=only or ())
    else:
        report = api.verify(executable, time_limit=time_limit, only=only or (), quick=quick, plan=plan)
    if form == "json":
        from envsolve.jsontext import dump

        deliver(dump(report), output)
    else:
        from envsolve.verify.describe import describe

        deliver(describe(report), output)
    if not report.passed:
        raise typer.Exit(VerificationError.exit_code)
