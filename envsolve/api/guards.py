"""Guarding the torch of an environment: ``forecast``, ``guard``, ``unguard``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from envsolve.api.machines import detect, machines_given
from envsolve.arguments import StrPath, items, path_of
from envsolve.errors import UsageError

if TYPE_CHECKING:
    from envsolve.guard.keep import Kept
    from envsolve.guard.model import Forecast
    from envsolve.machine.model import Machine


def forecast(
    command: Sequence[str], machines: Sequence[Machine] | None = None, environ: Mapping[str, str] = os.environ
) -> Forecast | None:
    """What a command of pip, uv or conda would do to the torch of its environment, by the installer's own dry run.

    Args:
        command: Its words, ``["pip", "install", "X"]``.
        machines: The one that the torch that comes is judged on; this host where None.
        environ: Environment variables of the command.

    Returns:
        The forecast; None where the command changes no environment.

    Raises:
        UsageError: It is no such command, it has no dry run, or its environment is not found.
        EnvsolveError: The installer itself refuses.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.guard.forecast import forecast as look_ahead

    words = items(command, str, "command")
    given = machines_given(machines)
    if not words or len(given) > 1:
        raise UsageError("one command is looked at, for one machine")
    return look_ahead(words, given[0] if given else detect(), Catalogue(), environ)


def guard(prefix: StrPath, environ: Mapping[str, str] = os.environ) -> Kept:
    """Leave constraints in an environment, so that plain pip and conda keep its torch.

    Raises:
        UsageError: There is no torch at ``prefix``, or its pip configuration has a constraint of its own.
        EnvsolveError: A file cannot be written.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.guard.keep import write

    return write(path_of(prefix, "prefix"), Catalogue(), environ)


def unguard(prefix: StrPath) -> Kept:
    """Take out what :func:`guard` left, and nothing else.

    Raises:
        UsageError: There is no folder at ``prefix``.
        EnvsolveError: A file cannot be changed.
    """
    from envsolve.guard.keep import remove

    return remove(path_of(prefix, "prefix"))
