"""``envsolve check-lock``: how the locks of a project work on the target machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from envsolve.cli.options import Machines, OutputFile, PythonVersion, option, path_argument, python_version
from envsolve.cli.output import check_output, deliver, deliver_as

_FAILS = 4


def command(
    locks: Annotated[list[Path], path_argument(metavar="LOCK...", help="uv.lock, poetry.lock, pylock.toml, ...")],
    machines: Machines = Machines(),
    extra: Annotated[
        list[str] | None, option("--extra", metavar="NAME", help="Check the lock with this extra.")
    ] = None,
    group: Annotated[
        list[str] | None, option("--group", metavar="NAME", help="Check the lock with this group.")
    ] = None,
    environment: Annotated[
        list[str] | None, option("--environment", metavar="NAME", help="Check this environment in a pixi.lock.")
    ] = None,
    python: PythonVersion = None,
    form: Annotated[
        Literal["text", "json", "sarif", "github"] | None,
        option("--format", help="Output format (default: from the suffix of -o FILE)."),
    ] = None,
    output: OutputFile = None,
) -> None:
    """Check if a lock file works on target machines.

    Reads uv.lock, poetry.lock, pdm.lock, pixi.lock, conda-lock.yml, pylock.toml and requirements with hashes. Nothing
    is run or downloaded. Exit code 4 if a lock does not run, or is incomplete, on a machine.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.locks.judge import check_locks
    from envsolve.locks.model import describe, github, sarif

    form = form or ("sarif" if output is not None and output.suffix == ".sarif" else None)
    check_output(form, output)
    named = (("extra", extra), ("group", group), ("environment", environment))
    chosen = [f"--{kind} {name}" for kind, names in named for name in names or ()]
    report = check_locks(locks, machines.named_or_host(), Catalogue(), chosen, python_version(python))
    if form in ("sarif", "github"):
        deliver(sarif(report) if form == "sarif" else github(report), output, commands=True)
    else:
        deliver_as(form, report, lambda: describe(report), output)
    if report.failed:
        raise typer.Exit(_FAILS)
