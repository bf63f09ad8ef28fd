"""``envsolve guard``: preview what an installer's command would do to torch, before it runs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import envsolve
from envsolve.cli.options import (
    AllowUnknownNames,
    Form,
    Machines,
    OutputFile,
    active_environment,
    argument,
    option,
    path,
)
from envsolve.cli.output import check_output, deliver_as, remark, text_width
from envsolve.errors import EnvsolveError, UsageError
from envsolve.system.progress import phase

if TYPE_CHECKING:
    from envsolve.protect.preview import Preview


def command(
    words: Annotated[
        list[str] | None,
        argument(metavar="-- COMMAND", help="The install command to check: pip install X, uv pip install X, ..."),
    ] = None,
    force: Annotated[bool, option("--force", help="Run the command even if it would harm torch.")] = False,
    dry_run: Annotated[bool, option("--dry-run", help="Only print what the command would do.")] = False,
    run: Annotated[
        bool,
        option("--run", help="With --dry-run: let pip or uv build packages that have no wheel. This runs their code."),
    ] = False,
    write: Annotated[
        bool, option("--write", help="Write constraints, so that later pip and uv installs keep this torch.")
    ] = False,
    remove: Annotated[bool, option("--remove", help="Remove the constraints that --write wrote.")] = False,
    prefix: Annotated[
        Path | None, path("--prefix", metavar="DIR", help="The environment for --write and --remove.")
    ] = None,
    allow_unknown_names: AllowUnknownNames = False,
    machines: Machines = Machines(),
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Preview what an install would do to torch.

    Runs the install only if it is safe. The installer's own dry run shows what would change; the rules say whether
    that runs on this machine. A command that would break torch, or replace it unasked, is refused with exit code 4.
    Otherwise the command runs, and its exit code is this one's. --format and -o are for --dry-run.
    """
    if write or remove:
        _keep(write, remove, prefix, words)
        return
    if not words:
        raise UsageError("no install command was given", hint="for example: envsolve guard -- pip install X")
    if prefix is not None:
        raise UsageError(
            "--prefix can be used only with --write or --remove",
            hint="the install command itself determines its environment",
        )
    check_output(form, output)
    named = machines.named()
    try:
        found = envsolve.preview_install(
            words, named, may_build=run or not dry_run, allow_unknown_names=allow_unknown_names
        )
    except EnvsolveError as error:
        if not force or isinstance(error, UsageError):
            raise
        remark(f"{error.message}\nrunning the command anyway, because of --force")
        found = None
    if dry_run:
        deliver_as(form, found, lambda: _words(found), output)
        raise typer.Exit(4 if found and found.refused else 0)
    if found is not None and (found.changes or found.refused):
        from envsolve.protect.preview import RefusedError, describe

        remark(describe(found, text_width(sys.stderr)))
        if found.refused and not force:
            raise RefusedError(
                "the command was not run, because it would harm torch",
                hint="use one of the alternatives above, or --force",
            )
        remark(f"running: {shlex.join(words)}")
    _run(words)


def _words(found: Preview | None) -> str:
    from envsolve.protect.preview import describe

    return describe(found, text_width(sys.stdout)) if found else "The command does not change an environment."


def _keep(write: bool, remove: bool, prefix: Path | None, words: list[str] | None) -> None:
    """Write the constraints, or remove them."""
    if words or (write and remove):
        raise UsageError(
            "--write and --remove cannot be combined with each other or with a command", hint="give only one of them"
        )
    place = prefix or active_environment("no environment to change", "give it with --prefix DIR")
    done = envsolve.guard(place) if write else envsolve.unguard(place)
    for file in done.files:
        remark(f"{'written' if write else 'cleaned'}: {file}")
    for note in done.notes:
        remark(note)


def _run(words: list[str]) -> NoReturn:
    """Replace this process with the command."""
    phase("")
    sys.stdout.flush()
    if sys.platform == "win32":  # which has no exec that keeps the terminal
        raise SystemExit(subprocess.run(words).returncode)
    os.execvp(words[0], words)
