"""``envsolve builds``: every published build of a package, and its verdict."""

from __future__ import annotations

from typing import Annotated

import envsolve
from envsolve.cli.options import Form, Machines, OutputFile, PythonVersion, argument, option, python_version
from envsolve.cli.output import SETTINGS, deliver_as


def command(
    package: Annotated[str, argument(metavar="PACKAGE", help="torch, torchvision, triton, ...")],
    machines: Machines = Machines(),
    python: PythonVersion = None,
    every: Annotated[bool, option("--all", help="Include builds that do not run, with the reason.")] = False,
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """List the builds of a package and where they run.

    Lists every published build of a package of the torch family, newest first, with its verdict on the machine.
    """
    from envsolve.planning.builds import describe

    found = envsolve.builds(package, machines.named_or_host(), python=python_version(python))
    deliver_as(form, found, lambda: describe(found, every=every, reasons=SETTINGS.verbose), output)
