"""The installers whose commands can be rehearsed, each a module of this folder with an ``INSTALLER``."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shlex
import shutil
from collections.abc import Mapping, Sequence

from envsolve.errors import EnvsolveError, UsageError
from envsolve.protect.model import Command, Installer, Rehearsed
from envsolve.system.processes import capture

_SHOWN_LINES = 12


def installer(name: str) -> Installer:
    """The installer of a module of this folder."""
    found: Installer = importlib.import_module(f"{__name__}.{name}").INSTALLER
    return found


def read_command(words: Sequence[str], environ: Mapping[str, str]) -> Command:
    """The command that ``words`` are.

    Raises:
        UsageError: They are no command of a known installer, the program is not there, or it cannot be rehearsed.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    command = next((c for name in names if (c := installer(name).read(words, environ)) is not None), None)
    if command is None:
        raise UsageError(
            f"{shlex.join(words)!r} is no command of pip, uv, conda or mamba",
            hint="write the installer's own command after the two dashes: envsolve guard -- pip install X",
        )
    if shutil.which(words[0], path=environ.get("PATH", os.defpath)) is None:
        raise UsageError(f"there is no program {words[0]}")
    return command


def rehearse(command: Command, environ: Mapping[str, str]) -> Rehearsed:
    """Have an installer say what it would do.

    Raises:
        EnvsolveError: It fails, or its answer is not understood.
    """
    assert command.rehearsal is not None  # only what changes an environment is rehearsed
    done = capture(command.rehearsal, {**environ, "NO_COLOR": "1"})
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode == 0:
        try:
            return installer(command.installer).rehearsed(printed, done.stderr)
        except ValueError as error:
            raise EnvsolveError(
                f"the dry run of {command.installer} is not understood: {error}",
                hint=f"see what it prints: {shlex.join(command.rehearsal)}",
            ) from error
    said = "\n".join(f"  {line}" for line in (done.stderr or printed).strip().splitlines()[-_SHOWN_LINES:])
    hint = "pip has dry runs since 22.2 and their report since 22.3" if "no such option" in done.stderr else None
    raise EnvsolveError(
        f"{command.installer} says that this cannot be done (exit status {done.returncode}):\n{said}", hint=hint
    )
