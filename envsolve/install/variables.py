"""The plan's environment variables, seen by a plain ``PREFIX/bin/python``.

Python executes the ``import`` lines of ``.pth`` files at start-up. One such line sets each variable unless the user has
set it, so that their own setting wins. It needs no activation, and holds in every process that this Python starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILENAME = "envsolve_environment.pth"


def write(site_packages: Path, environment: Mapping[str, str]) -> None:
    """Write the file that sets ``environment`` by default; none where there is nothing to set."""
    if environment:
        (site_packages / FILENAME).write_text(line(environment), encoding="ascii")


def line(environment: Mapping[str, str]) -> str:
    """The one line of the file: ASCII whatever the values, since Pythons differ in how they decode ``.pth`` files."""
    defaults = (f"os.environ.setdefault({name!a}, {value!a})" for name, value in sorted(environment.items()))
    return f"import os; {'; '.join(defaults)}\n"
