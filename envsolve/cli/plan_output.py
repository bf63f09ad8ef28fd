"""Where several plans go (``plan --allow-groups``): one text, or a folder with a file for each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import envsolve
from envsolve.cli.declare import option
from envsolve.cli.output import SETTINGS, check_target, deliver, remark
from envsolve.errors import EnvsolveError, UsageError
from envsolve.system import files

if TYPE_CHECKING:
    from envsolve.planning.groups import Plans
    from envsolve.planning.plan import Plan


def is_folder(output: Path | None) -> bool:
    """Whether ``-o`` names a folder, there or to be made: what has no suffix is one."""
    return output is not None and (files.is_folder(output) or (not output.suffix and not files.is_there(output)))


def check_place(form: str, output: Path | None) -> None:
    """Refuse a format that holds one plan where there is one place for several.

    Raises:
        UsageError: It is such a format, or the place cannot be.
    """
    from envsolve.formats._several import TOGETHER

    if is_folder(output):
        assert output is not None
        if not files.is_folder(output.absolute().parent):
            raise UsageError(f"there is no folder {output.parent}", hint="make it, or name another folder after -o")
        return
    check_target(output)
    if form == "pylock" and output is not None:
        from envsolve.formats.pylock import check_path

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
    from envsolve.formats import remarks
    from envsolve.formats._several import files, group_names, render_plans

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


# What a plan stays with: ``--lock``, the lock that ``-o`` would replace, ``--prefer installed``, ``--upgrade``.


Pairs = tuple[tuple[str, str], ...]

LockFile = Annotated[
    Path | None,
    option("--lock", metavar="FILE", help="A pylock.toml to stay with; by default the one that -o replaces."),
]
Upgrade = Annotated[bool, option("-U", "--upgrade", help="Stay with no lock: everything may move.")]
UpgradePackages = Annotated[
    list[str] | None, option("-P", "--upgrade-package", metavar="NAME", help="This package may move.")
]
Prefer = Annotated[
    str | None,
    option("--prefer", metavar="newest|installed", help="The newest, or the least change to what is installed."),
]
PrefixFolder = Annotated[Path | None, option("--prefix", metavar="DIR", help="The environment to stay near.")]
InstalledList = Annotated[
    Path | None,
    option("--installed", metavar="FILE", help="Likewise as a list: pip freeze, conda list, or JSON."),
]


def lock_to_keep(lock: Path | None, output: Path | None, form: str, *, upgrade: bool) -> Path | None:
    """The lock to stay with: the one that is named, else the one that envsolve wrote where this one will be written."""
    if upgrade:
        return None
    if lock is None and form == "pylock" and output is not None:
        from envsolve.install.lock_classes import is_own_lock

        return output if is_own_lock(output) else None
    return lock


def to_keep(
    lock: Path | None,
    upgrade_packages: list[str] | None,
    prefer: str | None,
    prefix: Path | None,
    installed: Path | None,
) -> Pairs:
    """Names and versions to stay with.

    Raises:
        UsageError: Options contradict each other, or one names nothing that can be read.
    """
    if prefer not in (None, "newest", "installed"):
        raise UsageError(f"--prefer {prefer}: not one of newest, installed", hint="leave it out for the newest")
    named = prefix is not None or installed is not None
    if prefer == "installed" and not named:
        raise UsageError("--prefer installed: what is installed?", hint="name it: --prefix DIR or --installed FILE")
    if prefer == "newest":
        prefix = installed = None
    return envsolve.installed_versions(lock, prefix=prefix, installed=_text(installed), upgrade=upgrade_packages or ())


def _text(installed: Path | None) -> str | None:
    if installed is None:
        return None
    from envsolve.system.files import read_regular

    try:
        return read_regular(installed).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"cannot read {installed}: {error.strerror or error}") from error


def tell_kept(made: Plan, kept: Pairs, lock: Path | None) -> None:
    """How much of a lock the plan stays with."""
    if lock is None or made.status == "impossible":
        return
    same = sum((package.name, package.version) in kept for package in made.packages)
    remark(f"kept: {same} of {len(made.packages)} packages are as in {lock}; --upgrade lets all move")
