"""Changing an environment with care: ``forecast``, ``guard``, ``unguard``, ``remedy``, ``mend``, ``restore``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from envsolve.api.machines import detect, machines_given
from envsolve.errors import UsageError
from envsolve.planning.request import StrPath, items, path_of

if TYPE_CHECKING:
    from envsolve.machine.model import Machine
    from envsolve.protect.fix import Fix, Fixed
    from envsolve.protect.keep import Kept
    from envsolve.protect.preview import Preview


def forecast(
    command: Sequence[str], machines: Sequence[Machine] | None = None, environ: Mapping[str, str] = os.environ
) -> Preview | None:
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
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.preview import preview

    words = items(command, str, "command")
    given = machines_given(machines)
    if not words or len(given) > 1:
        raise UsageError("one command is looked at, for one machine")
    return preview(words, given[0] if given else detect(), Catalogue(), environ)


def guard(prefix: StrPath, environ: Mapping[str, str] = os.environ) -> Kept:
    """Leave constraints in an environment, so that plain pip and conda keep its torch.

    Raises:
        UsageError: There is no torch at ``prefix``, or its pip configuration has a constraint of its own.
        EnvsolveError: A file cannot be written.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.keep import write

    return write(path_of(prefix, "prefix"), Catalogue(), environ)


def unguard(prefix: StrPath) -> Kept:
    """Take out what :func:`guard` left, and nothing else.

    Raises:
        UsageError: There is no folder at ``prefix``.
        EnvsolveError: A file cannot be changed.
    """
    from envsolve.protect.keep import remove

    return remove(path_of(prefix, "prefix"))


def remedy(
    prefix: StrPath, machines: Sequence[Machine] | None = None, environ: Mapping[str, str] = os.environ
) -> Fix | None:
    """What the least remedy of an environment would do; None where nothing is wrong with it.

    Args:
        prefix: The environment.
        machines: What it is to work on; this host where None.
        environ: Environment variables that decide beside its files, and those of the installer.

    Raises:
        UsageError: There is no environment at ``prefix``.
        ImpossibleError: The least remedy is none that pip or uv carries out; the hint says what to do.
        EnvsolveError: The installer says that it cannot.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.fix import find_fix

    return find_fix(path_of(prefix, "prefix"), machines_given(machines) or (detect(),), Catalogue(), environ)


def mend(
    mending: Fix,
    machines: Sequence[Machine] | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
) -> Fixed:
    """Carry out what :func:`remedy` gave, and diagnose the environment again; its state before is saved.

    Args:
        mending: What is to be done.
        machines: As for :func:`remedy`.
        progress: Told each line that the installer prints.
        environ: Environment variables.

    Raises:
        VerificationError: It did not help, and the environment is as before, or what to run is said.
        EnvsolveError: The installer failed, likewise.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.fix import apply_fix

    return apply_fix(mending, machines_given(machines) or (detect(),), Catalogue(), environ, progress)


def restore(
    prefix: StrPath, *, progress: Callable[[str], None] = lambda _: None, environ: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Put back the packages that an environment had before it was mended last, and forget that state.

    Returns:
        The names of the packages that were put back or removed.

    Raises:
        UsageError: No state is saved.
        VerificationError: It could not be put back; the hint says exactly what to run.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.restore import last, put_back

    path, state = last(path_of(prefix, "prefix"))
    names = put_back(state, Catalogue(), environ, progress)
    path.unlink()
    return names
