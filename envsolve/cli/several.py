"""Where several plans go (``plan --allow-groups``): one text, or a folder with a file for each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envsolve import files
from envsolve.cli.output import SETTINGS, check_target, deliver, remark
from envsolve.errors import EnvsolveError, UsageError

if TYPE_CHECKING:
    from envsolve.planner.groups import Plans


def is_folder(output: Path | None) -> bool:
    """Whether ``-o`` names a folder, there or to be made: what has no suffix is one."""
    return output is not None and (files.is_folder(output) or (not output.suffix and not files.is_there(output)))


def check_place(form: str, output: Path | None) -> None:
    """Refuse a format that holds one plan where there is one place for several.

    Raises:
        UsageError: It is such a format, or the place cannot be.
    """
    from envsolve.render._groups import TOGETHER

    if is_folder(output):
        assert output is not None
        if not files.is_folder(output.absolute().parent):
            raise UsageError(f"there is no folder {output.parent}", hint="make it, or name another folder after -o")
        return
    check_target(output)
    if form == "pylock" and output is not None:
        from envsolve.render.pylock import check_path

        check_path(output)
    if form not in TOGETHER:
        raise UsageError(
            f"--allow-groups may give several plans, and --format {form} holds one",
            hint="name a folder with -o: it gets a file for each",
        )


def deliver_plans(made: Plans, form: str, output: Path | None) -> None:
    """Print several plans, or write them to a file or a folder, and say what they are.

    Raises:
        EnvsolveError: Something cannot be written, or a plan cannot be in that format.
    """
    from envsolve.render import remarks
    from envsolve.render._groups import files, group_names, render_plans

    if output is not None and is_folder(output):
        texts = files(made, form)
        try:
            output.mkdir(exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise EnvsolveError(f"cannot make {output}: {reason}", hint="choose another place after -o") from error
        for name, text in texts.items():
            deliver(text, output / name)
    else:
        deliver(render_plans(made, form, sources=SETTINGS.verbose), output)
    if output is not None:
        named = [*zip(group_names(made), made.plans, strict=True), *(("unserved", plan) for plan in made.unserved)]
        for name, plan in named:
            for line in remarks(plan):
                remark(f"{name}: {line}")
