"""``envsolve envs``: the environments of this machine, and whether their torch works on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import envsolve
from envsolve.cli.options import Form, Machines, OutputFile, path_argument
from envsolve.cli.output import check_output, deliver_as, form_of, remark
from envsolve.errors import UsageError
from envsolve.system.limits import count_of


def command(
    directories: Annotated[
        list[Path] | None, path_argument(metavar="DIR", help="Also search DIR (default: the current directory).")
    ] = None,
    machines: Machines = Machines(),
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Find environments and say whether their torch works.

    Looks where venv, conda, pixi, uv, pipx and poetry keep environments, and in the directories named. Only reads
    files: nothing is imported or run.
    """
    check_output(form, output)
    if absent := next((one for one in directories or () if not one.is_dir()), None):
        raise UsageError(f"{absent} is not a directory", hint="give a directory that contains environments")
    given = machines.named_or_host()
    if len(given) > 1:
        raise UsageError("only one machine can be given", hint="give --machine once")
    found = envsolve.envs(directories or [Path()], given[0])
    deliver_as(form, found, lambda: envsolve.describe(found), output)
    if form_of(form, output) == "text":
        broken = sum(e.works == "no" for e in found.environments)
        remark(
            f"found {count_of(len(found.environments), 'environment')}; in {broken} "
            f"of them torch does not work on this machine"
        )
