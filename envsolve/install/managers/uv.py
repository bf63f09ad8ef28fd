"""uv: the ``uv`` on PATH, otherwise the one that the ``uv`` Python package put beside envsolve."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import tomli_w

from envsolve.install import managers
from envsolve.install.files import File
from envsolve.install.interpreters import PROBE_SECONDS, Target, uv_program
from envsolve.system.processes import ask


class Uv:
    """Fills an environment with ``uv pip install``."""

    name = "uv"
    preference = 0
    uncached = ("--no-cache", "--reinstall")
    hashed = ("--require-hashes",)
    unisolated = ("--no-build-isolation", "--no-cache")

    def program(self, python: Path, target: Target, pip: File | None) -> Sequence[str] | None:
        """The uv executable, if there is one."""
        found = uv_program()
        return [found] if found else None

    def title(self, program: Sequence[str]) -> str:
        """As it prints them itself."""
        answer = ask([*program, "--version"], os.environ, limit=PROBE_SECONDS)
        return " ".join(answer.split()[:2]) if answer else program[0]

    def arguments(self, python: Path, requirements: Path) -> Sequence[str]:
        """``uv pip install`` of exact files: no dependencies, none shared with uv's cache.

        uv links files to its cache by default; an edit in one environment would then reach all others.
        """
        options = ["--no-deps", "--link-mode", "copy", "--python", str(python)]
        return ["pip", "install", *options, "--requirement", str(requirements)]

    def settings(self, folder: Path) -> Mapping[str, str]:
        """Empty: the allowed part of the user's uv configuration is in the file that :meth:`fixed` writes."""
        return {}

    def fixed(self, folder: Path) -> Mapping[str, str]:
        """One configuration file instead of all others, with the user's settings of indexes and the cache."""
        file = folder / "uv.toml"
        file.write_text(tomli_w.dumps(managers.uv_table(os.environ, Path.cwd())), encoding="utf-8")
        file.chmod(0o600)
        return {"UV_CONFIG_FILE": str(file)}


MANAGER = Uv()
