"""``envsolve builds``: every published build of a package, and its verdict."""

from __future__ import annotations

from typing import Annotated, Literal

import envsolve
from envsolve.cli import options
from envsolve.cli.declare import argument, option
from envsolve.cli.output import SETTINGS, deliver


def command(
    package: Annotated[str, argument(metavar="PACKAGE", help="torch, torchvision, triton, ...")],
    machine: options.MachineFiles = None,
    target: options.TargetTexts = None,
    gpu: options.GpuNames = None,
    driver: options.DriverVersion = None,
    platform: options.PlatformName = None,
    python: options.PythonVersion = None,
    every: Annotated[bool, option("--all", help="All, also those that do not run, with the reason.")] = False,
    form: Annotated[Literal["text", "json"], option("--format", help="text or json.")] = "text",
    output: options.OutputFile = None,
) -> None:
    """List a package's builds and what runs where.

    Every published build of a package of the torch family, newest first, with its verdict on the machine.
    """
    named = options.machines(machine, target, gpu, driver, platform)
    found = envsolve.builds(package, named, python=options.python_version(python))
    if form == "json":
        from envsolve.system.files import dump

        deliver(dump(found), output)
    else:
        from envsolve.planning.builds import describe

        deliver(describe(found, every=every, reasons=SETTINGS.verbose), output)
