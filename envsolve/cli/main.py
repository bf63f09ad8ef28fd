"""The ``envsolve`` command."""

from __future__ import annotations

import sys

import envsolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with the documented exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given == ["--version"]:
        # What scripts ask before all else takes none of what commands do, click included.
        print(f"envsolve {envsolve.__version__}")
        sys.exit(0)
    from envsolve.cli.commands import run_command

    run_command(given)
