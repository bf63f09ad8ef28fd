"""``envsolve diff``: the differences between two locks or plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from envsolve.cli.options import Form, OutputFile, path_argument
from envsolve.cli.output import check_output, deliver_as


def command(
    before: Annotated[Path, path_argument(metavar="A", help="A lock file, or a plan saved as JSON.")],
    after: Annotated[Path, path_argument(metavar="B", help="The lock file or plan to compare with OLD.")],
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Compare two locks or plans.

    Reads pylock.toml, uv.lock, poetry.lock, pdm.lock and the JSON of a plan.
    """
    check_output(form, output)
    from envsolve.locks.compare import compare_files, table

    found = compare_files(before, after)
    heads = (before.name, after.name) if before.name != after.name else (str(before), str(after))
    words = table(found.differences, heads) if found.differences else "no difference"
    deliver_as(form, found, lambda: words, output)
