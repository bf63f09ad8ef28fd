"""``envsolve completion``: completion of commands, options and their values in the user's shell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from envsolve.cli.output import deliver, remark
from envsolve.errors import UsageError

HELP = "Set up completion for your shell."
#: Set while a shell asks for completions.
VARIABLE = "_ENVSOLVE_COMPLETE"
_NAMES = {"prog_name": "envsolve", "complete_var": VARIABLE}
# zsh loads the file at the first Tab of a terminal, and calls it then: as typer writes it, it defines the completion
# without completing, so that the first Tab does nothing.
_FIRST_TAB = '\nif [ "$funcstack[1]" = "_envsolve" ]; then _envsolve_completion "$@"; fi\n'
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")

Shell = Annotated[
    Literal["bash", "zsh", "fish", "powershell", "pwsh"] | None,
    typer.Argument(
        metavar="SHELL", help="bash, zsh, fish, powershell or pwsh (default: the shell that you are using)."
    ),
]
ShellOption = Annotated[
    Literal["bash", "zsh", "fish", "powershell", "pwsh"] | None,
    typer.Option("--shell", help="The shell, as an option instead of an argument."),
]


def install(name: Shell = None, shell: ShellOption = None) -> None:
    """Install completion for your shell.

    The script for PowerShell follows the documentation of Register-ArgumentCompleter -Native. It was not run, since no
    PowerShell was available.
    """
    from typer import _completion_shared as completion

    try:
        done, path = completion.install(name or shell, **_NAMES)
    except typer.Exit:
        hint = f"give its name: envsolve completion install bash (or {', '.join(_SHELLS[1:])})"
        raise UsageError("cannot detect which shell you are using", hint=hint) from None
    if done == "zsh":
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(_FIRST_TAB)
    remark(f"completion for {done} is installed in {path}; open a new terminal to use it")


def show(name: Shell = None, shell: ShellOption = None) -> None:
    """Print the completion script, to install it yourself."""
    from typer._completion_shared import get_completion_script

    wanted = name or shell
    if wanted is None:
        hint = f"give its name: envsolve completion show bash (or {', '.join(_SHELLS[1:])})"
        raise UsageError("no shell was given", hint=hint)
    script = get_completion_script(shell=wanted, **_NAMES)
    deliver(script + _FIRST_TAB if wanted == "zsh" else script, None)


COMMANDS = (install, show)


# The values of options. Whatever a shell asks for is imported only then.


def gpu_values(incomplete: str) -> list[str]:
    """Names of GPUs, ``RTX-5070-Ti``: with hyphens, since not every shell quotes a completion that has blanks."""
    from envsolve.facts.catalogue import Catalogue

    names = (model.name.removeprefix("NVIDIA ").removeprefix("GeForce ") for model in Catalogue().gpus)
    return _starting(incomplete, names if " " in incomplete else (name.replace(" ", "-") for name in names))


def variant_values(incomplete: str) -> list[str]:
    """CUDA variants, ``cu130``."""
    from envsolve.facts.catalogue import Catalogue, variants

    return _starting(incomplete, ("auto", *variants(Catalogue())))


def python_values(incomplete: str) -> list[str]:
    """Python versions, ``3.12``."""
    from envsolve.facts.catalogue import Catalogue, pythons

    return _starting(incomplete, pythons(Catalogue()))


def format_values(incomplete: str) -> list[str]:
    """Formats of plans."""
    from envsolve.formats import formats

    return _starting(incomplete, formats())


def package_values(incomplete: str) -> list[str]:
    """Packages that are built for one torch or CUDA. Without a letter of one, files and projects are offered."""
    from envsolve.facts.catalogue import Catalogue

    return _starting(incomplete, Catalogue().packages()) if incomplete else []


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    # Shells drop a value that does not start with what was typed, letter for letter.
    lower = incomplete == incomplete.lower() and any(map(str.isalpha, incomplete))
    written = (name.lower() if lower else name for name in names)
    return [name for name in dict.fromkeys(written) if name.startswith(incomplete)]
