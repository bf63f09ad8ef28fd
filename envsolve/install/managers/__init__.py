"""Package managers that can fill an environment, each a module of this folder.

A new one is a new file with a class that satisfies :class:`Manager`, bound to the name ``MANAGER``.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from envsolve.errors import UsageError
from envsolve.install import settings, strays
from envsolve.install.files import File
from envsolve.install.interpreters import Target


class Manager(Protocol):
    """A program that installs a requirements file into an environment.

    Attributes:
        name: What ``--manager`` calls it.
        preference: The lowest that is present is taken where the user names none.
        uncached: Options with which it installs everything once more, and takes nothing from its cache.
        hashed: Options with which it takes nothing but what a line gives the hash of.
        unisolated: Options with which it builds in the environment itself, and takes no built wheel from its cache.
    """

    name: str
    preference: int
    uncached: Sequence[str]
    hashed: Sequence[str]
    unisolated: Sequence[str]

    def program(self, python: Path, target: Target, pip: File | None) -> Sequence[str] | None:
        """The start of the command line that runs it; None where it is not present.

        Args:
            python: The environment's own interpreter.
            target: What that interpreter is.
            pip: The pip wheel that it carries.
        """

    def arguments(self, python: Path, requirements: Path) -> Sequence[str]:
        """The rest of the command line: install exactly ``requirements`` into the environment of ``python``."""

    def settings(self, folder: Path) -> Mapping[str, str]:
        """Environment variables of the run that stand in for the user's configuration files; ``folder`` may be used."""

    def fixed(self, folder: Path) -> Mapping[str, str]:
        """Environment variables that overrule the user's own."""


def available() -> list[Manager]:
    """Every manager of this folder, the preferred first; whether one is present is for it to say."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    managers: list[Manager] = [module.MANAGER for module in modules]
    return sorted(managers, key=lambda manager: manager.preference)


def choose(name: str | None, python: Path, target: Target, pip: File | None) -> tuple[Manager, Sequence[str]]:
    """The manager called ``name``, or the preferred one that is present, and the program that runs it.

    Raises:
        UsageError: There is none of that name, or it is not present.
    """
    known = available()
    names = ", ".join(manager.name for manager in known)
    asked = [manager for manager in known if name in (None, manager.name)]
    if not asked:
        raise UsageError(f"there is no package manager called {name!r} here", hint=f"known ones: {names}")
    for manager in asked:
        program = manager.program(python, target, pip)
        if program is not None:
            return manager, program
    raise UsageError(
        f"{name or names} was not found on this machine", hint="install uv, for example with: pip install uv"
    )


def child_environment(manager: Manager, staging: Path, temporary: Path) -> dict[str, str]:
    """The environment of a manager's process: the user's own, less what would change what is installed and where."""
    kept = {**manager.settings(staging), **settings.kept_variables(os.environ), **manager.fixed(staging)}
    own = {strays.MARK: str(staging), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    return {"TMPDIR": str(temporary), **kept, **own}
