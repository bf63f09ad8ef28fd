"""``envsolve completion``: completion of commands, options and their values in the user's shell."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from envsolve.cli.options import option
from envsolve.cli.output import deliver, remark
from envsolve.errors import UsageError

HELP = "Set up completion for your shell."
_NAMES = {"prog_name": "envsolve", "complete_var": "_ENVSOLVE_COMPLETE"}

Shell = Annotated[
    Literal["bash", "zsh", "fish", "powershell", "pwsh"] | None,
    option("--shell", help="The shell (default: the one that runs this)."),
]


def install(shell: Shell = None) -> None:
    """Install completion for your shell."""
    from typer import _completion_shared as completion

    try:
        name, path = completion.install(shell, **_NAMES)
    except typer.Exit:
        hint = "name it: --shell bash, zsh, fish, powershell or pwsh"
        raise UsageError("the shell that runs this is not known", hint=hint) from None
    remark(f"completion for {name} is installed in {path}; it works in new terminals")


def show(shell: Shell = None) -> None:
    """Print the completion script, to install it yourself."""
    from typer._completion_shared import get_completion_script

    if shell is None:
        raise UsageError("no shell is named", hint="name it: --shell bash, zsh, fish, powershell or pwsh")
    deliver(get_completion_script(shell=shell, **_NAMES), None)


COMMANDS = (install, show)
