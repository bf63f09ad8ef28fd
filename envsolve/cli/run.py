"""``envsolve run``: run a command in the environment of a fleet that fits this node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from envsolve.cli.options import argument, option, path
from envsolve.cli.output import SETTINGS, deliver, remark
from envsolve.errors import UsageError


def command(
    words: Annotated[
        list[str] | None, argument(metavar="-- COMMAND", help="The command to run, for example: python train.py.")
    ] = None,
    fleet: Annotated[Path, path("--fleet", metavar="DIR", help="The fleet's directory (see `envsolve fleet`).")] = Path(
        "fleet"
    ),
    which: Annotated[bool, option("--which", help="Only print the environment's directory.")] = False,
) -> None:
    """Run a command in the environment that fits this node.

    Probes the node, chooses among the environments of `envsolve fleet install`, and becomes the command. Exit code 3 if
    none fits the node, with the reason for each.
    """
    from envsolve.fleet.install import choose, environment_of, this_node, variables
    from envsolve.fleet.plan import read_plan

    if not words and not which:
        raise UsageError("no command to run", hint="for example: envsolve run --fleet fleet -- python train.py")
    made = read_plan(fleet)
    node = this_node()
    group = choose(made, node.node, node.machine)
    place = environment_of(fleet, group).absolute()
    if which or not words:
        deliver(str(place), None)
        return
    if SETTINGS.verbose:
        remark(f"environment: {place}")
    try:
        os.execvpe(words[0], words, dict(variables(place, os.environ)))
    except OSError as error:
        raise UsageError(f"{words[0]}: {error.strerror or error}", hint="give a program of the environment") from error
