"""``envsolve diagnose --fix`` and ``--restore``: shown, confirmed, done."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import envsolve
from envsolve.cli.output import SETTINGS, deliver, remark
from envsolve.errors import UsageError, VerificationError

if TYPE_CHECKING:
    from envsolve.machine.model import Machine
    from envsolve.protect.fix import Fix


def fix(prefix: Path, machines: tuple[Machine, ...] | None, sure: bool) -> None:
    """Show the least remedy of an environment, ask, do it, and say what came of it.

    Raises:
        UsageError: Nobody is there to be asked.
        VerificationError: Something is still wrong.
    """
    found = envsolve.find_fix(prefix, machines)
    if found is None:
        deliver("Nothing is known to be wrong with this environment.", None)
        return
    deliver(_shown(found), None)
    if not sure:
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError("nothing was changed: nobody is there to be asked", hint="say --yes to have it done")
        click.confirm("Do it?", abort=True, err=True)
    done = envsolve.apply_fix(found, machines, progress=_said)
    remark(f"{found.cause} is mended; to go back: envsolve diagnose --prefix {prefix} --restore")
    if done.remaining:
        others = ", ".join(diagnosis.cause for diagnosis in done.remaining)
        raise VerificationError(
            f"the environment still has {others}", hint=f"see envsolve diagnose --prefix {prefix}, or --fix it again"
        )


def restore(prefix: Path) -> None:
    """Put back what was there before the last fix."""
    names = envsolve.restore(prefix, progress=_said)
    deliver(f"As before: {', '.join(names)}" if names else "The environment is as it was then.", None)


def _shown(found: Fix) -> str:
    changes = [f"  {change.text}" for change in found.changes] or ["  no package comes or goes"]
    return "\n".join([f"{found.cause}: {found.remedy}", f"  {found.command}", f"In {found.prefix}:", *changes])


def _said(line: str) -> None:
    if SETTINGS.verbose:
        remark(line)
