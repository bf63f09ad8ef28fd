"""``envsolve bundle``: every file of a plan, with an installer that needs no network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from envsolve.cli.options import Form, option, path, path_argument
from envsolve.cli.output import deliver_as, remark
from envsolve.errors import UsageError
from envsolve.inspection import bundle
from envsolve.system.files import is_folder
from envsolve.system.limits import count_of

if TYPE_CHECKING:
    from envsolve.install.bundle import Bundle


def command(
    plan: Annotated[Path, path_argument(metavar="PLAN", help="A plan (JSON) or a pylock.toml written by envsolve.")],
    output: Annotated[Path, path("-o", metavar="DIR|TAR", help="The directory or archive (NAME.tar) to create.")],
    offline: Annotated[bool, option("--offline", help="Use only files that are already on this machine.")] = False,
    form: Form = None,
) -> None:
    """Download a plan for a machine without a network.

    Writes every file of the plan, checked by its hash, and an installer that needs only Python. Lists what the packages
    still download or compile when they are first used. If you run the command again after an interruption,
    it continues where it stopped.
    """
    if not is_folder(output.absolute().parent):
        raise UsageError(f"there is no directory {output.parent}", hint="create it, or choose another place with -o")
    if output.suffix in (".gz", ".tgz", ".zip", ".xz", ".bz2", ".zst"):
        raise UsageError(
            f"-o {output}: a bundle is not compressed further, because wheels are already compressed",
            hint="use the name NAME.tar",
        )
    from envsolve.install.bundle import in_words

    made = bundle(plan, output, offline=offline)
    remark(f"written to {output}: {count_of(len(made.files), 'file')}")
    deliver_as(form, made, lambda: "\n".join(_lines(made, in_words(made), output)), None)


def _lines(made: Bundle, later: Iterable[str], output: Path) -> list[str]:
    place = f"tar xf {output.name} && cd {output.stem}" if output.suffix == ".tar" else f"cd {output.name}"
    lines = [f"on the machine without a network: {place} && python{made.python or '3'} install.py DIRECTORY"]
    listed = [f"- {line}" for line in later]
    return [*lines, "some packages download or compile more when they are first used:", *listed] if listed else lines
