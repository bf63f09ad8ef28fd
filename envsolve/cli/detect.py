"""``envsolve detect``: the hardware, driver and software of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import envsolve
from envsolve.cli.options import option, path
from envsolve.cli.output import SETTINGS, deliver_as, form_of


def command(
    form: Annotated[
        Literal["text", "json"] | None, option("--format", help="Output format (default: from the suffix of -o FILE).")
    ] = None,
    output: Annotated[
        Path | None, path("-o", metavar="FILE", help="Write the description of this machine to FILE, as JSON.")
    ] = None,
) -> None:
    """Show this machine's GPUs, driver and Pythons.

    Reads its driver, GPUs, platform, toolkits, compilers, Pythons and installers.
    """
    from envsolve.machine.model import describe

    machine = envsolve.detect()
    # A file is read by --machine, so its default is JSON.
    chosen = form or ("json" if output is not None and not output.suffix else form_of(None, output))
    deliver_as(chosen, machine, lambda: describe(machine, verbose=SETTINGS.verbose), output)
