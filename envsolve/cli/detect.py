"""``envsolve detect``: what this machine is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import envsolve
from envsolve.cli.declare import option
from envsolve.cli.output import SETTINGS, deliver


def command(
    form: Annotated[Literal["text", "json"] | None, option("--format", help="text, or json to keep.")] = None,
    output: Annotated[Path | None, option("-o", metavar="FILE", help="Write it to FILE, as JSON.")] = None,
) -> None:
    """Show what this machine is.

    Reads its driver, GPUs, platform, toolkits, compilers, Pythons and installers.
    """
    machine = envsolve.detect()
    if (form or ("json" if output else "text")) == "json":
        from envsolve.machine.profile import dump_machine

        deliver(dump_machine(machine), output)
    else:
        from envsolve.machine.model import describe

        deliver(describe(machine, verbose=SETTINGS.verbose), output)
