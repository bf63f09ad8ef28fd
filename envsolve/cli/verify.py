"""``envsolve verify``: run the checks of an environment."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import envsolve
from envsolve.cli.options import Form, OutputFile, active_environment, option, path
from envsolve.cli.output import check_target, deliver, deliver_as, form_of
from envsolve.errors import UsageError, VerificationError
from envsolve.system.files import is_file, is_there, real_path

if TYPE_CHECKING:
    from envsolve.verify.report import Report


def command(
    prefix: Annotated[
        Path | None, path("--prefix", metavar="DIR", help="The environment (default: the active one, or .venv).")
    ] = None,
    python: Annotated[
        str | None, option("--python", metavar="EXE", help="The interpreter of the environment, instead of --prefix.")
    ] = None,
    report: Annotated[
        Path | None, path("--report", metavar="FILE", help="Show a saved report (JSON) and run no checks.")
    ] = None,
    compile_only: Annotated[
        bool, option("--compile-only", help="Only compile kernels for the GPUs given with --gpu. Requires no GPU.")
    ] = False,
    gpu: Annotated[
        list[str] | None,
        option("--gpu", metavar="NAME|CC", help="With --compile-only: compile for this GPU. Repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None, option("--only", metavar="CHECK", help="Run only this check. Repeatable.")
    ] = None,
    quick: Annotated[bool, option("--quick", help="Run only the fastest and most useful checks.")] = False,
    hashes: Annotated[
        bool,
        option("--hashes", help="Compare the hashes of all installed files, also with --quick. This can take minutes."),
    ] = False,
    fast_paths: Annotated[
        bool,
        option(
            "--fast-paths", help="Try and time each fast path of the GPU and the installed packages (FP8, TMA, ...)."
        ),
    ] = False,
    bench: Annotated[
        bool, option("--bench", help="Measure the speed of the GPU, and compare it with the documented values.")
    ] = False,
    minutes: Annotated[
        float | None,
        option("--minutes", metavar="N", help="Repeat computations for N minutes to find unreliable hardware."),
    ] = None,
    plan: Annotated[
        Path | None, path("--plan", metavar="FILE", help="Compare the results with a plan (JSON) or a pylock.toml.")
    ] = None,
    compare: Annotated[
        Path | None, path("--compare", metavar="FILE", help="Show what changed since an earlier report (JSON).")
    ] = None,
    time_limit: Annotated[float, option("--time-limit", metavar="SECONDS", help="Time limit for each check.")] = 120.0,
    form: Form = None,
    output: OutputFile = None,
    html: Annotated[
        Path | None,
        path(
            "--html", metavar="FILE", help="Also write the report as an HTML page, for example to attach to a ticket."
        ),
    ] = None,
) -> None:
    """Verify an environment.

    Compiles and runs kernels in it and compares what they compute.
    """
    one_of = "give one of --prefix DIR, --python EXE, --report FILE"
    if [prefix, python, report].count(None) < 2:
        raise UsageError("give exactly one environment to verify", hint=one_of)
    measures = _measures(minutes, fast_paths=fast_paths, bench=bench)
    _refuse_beside_measures(measures, gpu or plan or compile_only or quick or hashes, only, report)
    _refuse_at_odds(gpu, only, plan, report, compile_only=compile_only, quick=quick, hashes=hashes)
    written, read = {"-o": output, "--html": html}, {"--report": report, "--plan": plan, "--compare": compare}
    for name, target in written.items():
        check_target(target, name)
        _expect_writable(target, name)
    _refuse_overwriting(written, read, form)
    form_of(form, output)
    if report:
        found = envsolve.saved_report(report, before=compare)
    else:
        place = prefix or (
            active_environment("no environment to verify", one_of) if python is None else _program(python)
        )
        choice: dict[str, Any] = {"time_limit": time_limit, "only": only or (), "plan": plan, "before": compare}
        if measures:
            del choice["plan"]
            found = envsolve.measure_gpus(place, measures[0], minutes=1.0 if minutes is None else minutes, **choice)
        elif compile_only:
            found = envsolve.verify_compiles(place, gpu or (), **choice)
        else:
            found = envsolve.verify(place, quick=quick, hashes=hashes, **choice)
    with contextlib.ExitStack() as stack:
        if html:  # also where the report cannot be delivered
            from envsolve.verify.page import page

            stack.callback(deliver, page(found), html)
        deliver_as(form, found, partial(_words, found), output)
    if not found.passed or found.worse:
        raise typer.Exit(VerificationError.exit_code)


def _program(python: str) -> Path:
    """Return the path of an interpreter, which may be a name on PATH; ``./name`` and a path are not looked up there.

    Raises:
        UsageError: The program does not exist.
    """
    found = shutil.which(python) if python == PurePath(python).name else None
    path = Path(found or python)
    if not python:
        raise UsageError("--python: the path is empty", hint="give the bin/python of an environment")
    if not is_file(path):
        raise UsageError(f"--python {python!r}: no such interpreter", hint="give the bin/python of an environment")
    return path


def _words(found: Report) -> str:
    from envsolve.verify.report import describe

    return describe(found)


def _is_file_to_be(path: Path | None) -> bool:
    """Whether a path is a regular file, or would become one; a terminal, a pipe or /dev/null may be used twice."""
    return path is not None and (is_file(path) or not is_there(path)) and str(path) != "-"


def _expect_writable(path: Path | None, name: str) -> None:
    """Refuse unwritable outputs before the checks run: afterwards their report would be lost."""
    if path and _is_file_to_be(path) and not os.access(real_path(path).parent, os.W_OK):
        raise UsageError(
            f"{real_path(path).parent} is not writable", hint=f"give a file in another directory after {name}"
        )


def _refuse_overwriting(written: Mapping[str, Path | None], read: Mapping[str, Path | None], form: str | None) -> None:
    """Refuse one file for two outputs. A report may replace the one that it is compared with."""
    places = {name: real_path(path) for name, path in {**read, **written}.items() if path and _is_file_to_be(path)}
    for one, other in combinations(places, 2):
        rolling = (one, other, form) == ("--compare", "-o", "json")
        if places[one] == places[other] and other in written and not rolling:
            raise UsageError(
                f"{one} and {other} name the same file: {places[one]}", hint=f"give another file after {other}"
            )


def _measures(minutes: float | None, *, fast_paths: bool, bench: bool) -> list[Literal["fast-paths", "bench", "soak"]]:
    """The requested measures."""
    asked: tuple[tuple[Literal["fast-paths", "bench", "soak"], bool], ...] = (
        ("fast-paths", fast_paths),
        ("bench", bench),
        ("soak", minutes is not None),
    )
    return [kind for kind, wanted in asked if wanted]


def _refuse_beside_measures(
    measures: Sequence[str], others: object, only: list[str] | None, report: Path | None
) -> None:
    """Refuse options that request a measure and something else.

    Raises:
        UsageError: They do.
    """
    if len(measures) > 1:
        raise UsageError("--fast-paths, --bench and --minutes cannot be combined", hint="give only one of them")
    if measures and (others or report or (only and measures != ["fast-paths"])):
        raise UsageError(
            "--fast-paths, --bench and --minutes run no checks",
            hint="use only these options with it: --prefix, --python, --compare, --time-limit, --format, -o, --html",
        )


def _refuse_at_odds(
    gpu: list[str] | None,
    only: list[str] | None,
    plan: Path | None,
    report: Path | None,
    *,
    compile_only: bool,
    quick: bool,
    hashes: bool,
) -> None:
    """Refuse options that exclude each other."""
    from envsolve.verify.report import FILES, LOADER

    if report and (gpu or only or plan or compile_only or quick or hashes):
        raise UsageError(
            "--report shows a saved report and runs no checks",
            hint="use only --compare, --format, -o and --html with it; or use --prefix DIR instead of --report",
        )
    if gpu and not compile_only:
        raise UsageError(
            "--gpu gives GPUs to compile for, so it requires --compile-only",
            hint="add --compile-only; or leave --gpu out to run the checks on the GPUs of this machine",
        )
    if compile_only and not gpu and not (only and set(only) <= {FILES, LOADER}):
        raise UsageError("--compile-only: no GPU to compile for", hint="add --gpu NAME or --gpu 9.0, once for each GPU")
    if compile_only and hashes:
        raise UsageError("--hashes applies only to the checks of installed files", hint="leave out --compile-only")
    if compile_only and quick:
        raise UsageError("--quick applies only to checks that run on a GPU", hint="leave out --compile-only")
