"""The plan's environment variables, seen by a plain ``PREFIX/bin/python``.

Python executes the ``import`` lines of ``.pth`` files at start-up. One such line sets each variable unless the user has
set it, so that their own setting wins. It needs no activation, and holds in every process that this Python starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from envsolve.plan import SITE_PACKAGES

FILENAME = "envsolve_environment.pth"
_AND_PATH = ":$PATH"


def write(site_packages: Path, environment: Mapping[str, str]) -> None:
    """Write the file that sets ``environment`` by default; none where there is nothing to set.

    Args:
        site_packages: The folder of packages, ``PREFIX/lib/python3.12/site-packages``.
        environment: By name; values that begin with ``{site_packages}`` follow the environment where it is moved.
    """
    if environment:
        (site_packages / FILENAME).write_text(
            line(environment, f"lib/{site_packages.parent.name}/site-packages"), "ascii"
        )


def line(environment: Mapping[str, str], site_packages: str) -> str:
    """The one line of the file: ASCII whatever the values, since Pythons differ in how they decode ``.pth`` files.

    Args:
        environment: By name.
        site_packages: The folder of packages, relative to the environment.
    """
    settings = (_setting(name, value, site_packages) for name, value in sorted(environment.items()))
    return f"import os, sys; {'; '.join(settings)}\n"


def _setting(name: str, value: str, site_packages: str) -> str:
    """One statement: a folder goes before those of ``PATH``, once; another variable is set unless it is already."""
    if name == "PATH":
        folder = _expression(value.removesuffix(_AND_PATH), site_packages)
        rest = "*os.environ.get('PATH', os.defpath).split(os.pathsep)"
        return f"os.environ['PATH'] = os.pathsep.join(dict.fromkeys([{folder}, {rest}]))"
    return f"os.environ.setdefault({name!a}, {_expression(value, site_packages)})"


def _expression(value: str, site_packages: str) -> str:
    """A value as Python; what lies in the environment is found from where the environment is at that time."""
    if not value.startswith(f"{SITE_PACKAGES}/"):
        return f"{value!a}"
    return f"os.path.join(sys.prefix, {site_packages + value.removeprefix(SITE_PACKAGES)!a})"
