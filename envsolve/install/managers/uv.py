"""uv: the ``uv`` on PATH, else the one that the ``uv`` Python package put beside envsolve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from envsolve.install.files import File
from envsolve.install.interpreters import Target, uv_program


class Uv:
    """Fills an environment with ``uv pip install``."""

    name = "uv"
    preference = 0
    uncached = ("--no-cache", "--reinstall")

    def program(self, python: Path, target: Target, pip: File | None) -> Sequence[str] | None:
        """The uv executable, if there is one."""
        found = uv_program()
        return [found] if found else None

    def arguments(self, python: Path, requirements: Path) -> Sequence[str]:
        """``uv pip install`` of exact files: no dependencies, no file without its hash, none shared with uv's cache.

        uv links files to its cache unless told otherwise; an edit in one environment would then reach all others.
        """
        options = ["--no-deps", "--require-hashes", "--no-progress", "--link-mode", "copy", "--python", str(python)]
        return ["pip", "install", *options, "--requirement", str(requirements)]

    def settings(self) -> Mapping[str, str]:
        """None beyond the user's own."""
        return {}


MANAGER = Uv()
