"""``envsolve envs``: the environments of this machine, and whether their torch works on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import envsolve
from envsolve.cli import options
from envsolve.cli.declare import argument
from envsolve.cli.output import check_target, deliver_as, remark
from envsolve.errors import UsageError


def command(
    folders: Annotated[
        list[Path] | None, argument(metavar="[FOLDER]...", help="Where to look besides the tools' own places.")
    ] = None,
    machine: options.MachineFiles = None,
    target: options.TargetTexts = None,
    gpu: options.GpuNames = None,
    driver: options.DriverVersion = None,
    platform: options.PlatformName = None,
    form: options.Form = "text",
    output: options.OutputFile = None,
) -> None:
    """Find environments and say whether their torch works.

    Looks where venv, conda, pixi, uv, pipx and poetry keep environments, and in the folders named (else in the current
    one). Reads files alone: nothing is imported or run.
    """
    from envsolve.diagnose.survey import describe

    check_target(output)
    machines = options.machines(machine, target, gpu, driver, platform)
    if len(machines) > 1:
        raise UsageError("the environments are judged on one machine", hint="give one --machine")
    found = envsolve.envs(folders or [Path()], machines[0])
    deliver_as(form, found, lambda: describe(found), output)
    if form == "text":
        broken = sum(e.works == "no" for e in found.environments)
        remark(f"{len(found.environments)} environments, {broken} with a torch that does not work here")
