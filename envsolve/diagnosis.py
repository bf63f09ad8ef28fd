"""Stages that find out what is wrong and change an environment with care, and the check of a Dockerfile.

Every function on an environment takes the same ``prefix``, its root directory. Imports are local to the functions, so
that each command loads only what it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from envsolve.errors import UsageError
from envsolve.machine.known import detect, machines_given, machines_or_host
from envsolve.system.files import StrPath, items, path_of

if TYPE_CHECKING:
    from envsolve.diagnose.model import Diagnoses
    from envsolve.dockerfile.model import Report as DockerfileReport
    from envsolve.machine.model import Machine
    from envsolve.protect.fix import Fix, Fixed
    from envsolve.protect.keep import Preferences
    from envsolve.protect.preview import Preview
    from envsolve.verify.report import Probe


def diagnose(
    log: str | bytes = "",
    machines: Sequence[Machine] | None = None,
    *,
    installed: str | Mapping[str, str] | None = None,
    prefix: StrPath | None = None,
    probes: Sequence[Probe] = (),
    environ: Mapping[str, str] = os.environ,
) -> Diagnoses:
    """Find the root causes behind an error text, a report or an environment, with the smallest fix first.

    Args:
        log: The text, or the bytes of a file that holds it.
        machines: Where it happened: the first is completed from the text, and the fixes work on all of them. If None,
            this host if there is a ``prefix``, otherwise what the text says.
        installed: Version by package, or the text of ``pip freeze``, ``pip list`` or ``conda list``; what ``log`` says
            if None.
        prefix: An environment on this computer, read without running any of it. Its files override the texts.
        probes: The result of :func:`probe` for it.
        environ: Environment variables that matter in an environment besides its files.

    Raises:
        UsageError: ``installed`` holds no package with a version, there is no environment at ``prefix``, or an argument
            has the wrong type.
    """
    from envsolve.diagnose.environment import answer
    from envsolve.facts.catalogue import Catalogue
    from envsolve.system.files import dump
    from envsolve.verify.report import Probe

    known = machines_given(machines) or ((detect(),) if prefix is not None else ())
    listed = dump(installed) if isinstance(installed, Mapping) else installed
    root = path_of(prefix, "prefix") if prefix is not None else None
    return answer(log, known, listed, root, Catalogue(), environ, items(probes, Probe, "probes"))


def preview_install(
    command: Sequence[str], machines: Sequence[Machine] | None = None, environ: Mapping[str, str] = os.environ
) -> Preview | None:
    """Preview what a command of pip, uv or conda would do to the torch of its environment, by a dry run.

    Args:
        command: Its words, ``["pip", "install", "X"]``.
        machines: The machine to judge the new torch on; this host if None.
        environ: Environment variables of the command.

    Returns:
        The preview; None if the command does not change an environment.

    Raises:
        UsageError: It is not such a command, it has no dry run, or its environment is not found.
        EnvsolveError: The installer itself refuses.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.preview import preview

    words = items(command, str, "command")
    given = machines_given(machines)
    if not words or len(given) > 1:
        raise UsageError("preview_install takes one command and at most one machine", hint="preview them one by one")
    return preview(words, given[0] if given else detect(), Catalogue(), environ)


def guard(prefix: StrPath, environ: Mapping[str, str] = os.environ) -> Preferences:
    """Write constraints into an environment that make plain pip and conda keep its torch.

    Raises:
        UsageError: There is no torch at ``prefix``, or its pip configuration has a constraint of its own.
        EnvsolveError: A file cannot be written.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.keep import write

    return write(path_of(prefix, "prefix"), Catalogue(), environ)


def unguard(prefix: StrPath) -> Preferences:
    """Remove what :func:`guard` wrote, and nothing else.

    Raises:
        UsageError: There is no directory at ``prefix``.
        EnvsolveError: A file cannot be changed.
    """
    from envsolve.protect.keep import remove

    return remove(path_of(prefix, "prefix"))


def find_fix(
    prefix: StrPath, machines: Sequence[Machine] | None = None, environ: Mapping[str, str] = os.environ
) -> Fix | None:
    """Find the smallest fix of an environment; None if nothing is known to be wrong with it.

    Args:
        prefix: The environment.
        machines: The machines that it should work on; this host if None.
        environ: Environment variables that matter besides its files, and those of the installer.

    Raises:
        UsageError: There is no environment at ``prefix``.
        ImpossibleError: pip and uv cannot apply the smallest fix; the hint says what to do.
        EnvsolveError: The installer refuses.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.fix import find_fix

    return find_fix(path_of(prefix, "prefix"), machines_or_host(machines), Catalogue(), environ)


def apply_fix(
    fix: Fix,
    machines: Sequence[Machine] | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
) -> Fixed:
    """Save the state of an environment, apply the fix that :func:`find_fix` found, and diagnose it again.

    Args:
        fix: What to do.
        machines: As for :func:`find_fix`.
        progress: Called with each line that the installer prints.
        environ: Environment variables.

    Raises:
        VerificationError: It did not help; the environment is as before, or the hint says what to run.
        EnvsolveError: The installer failed; otherwise the same.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.fix import apply_fix

    return apply_fix(fix, machines_or_host(machines), Catalogue(), environ, progress)


def restore(
    prefix: StrPath,
    *,
    confirm: Callable[[tuple[str, ...]], object] = bool,
    progress: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[str, ...]:
    """Put back the packages that an environment had before its last fix, and delete the saved state.

    Args:
        prefix: The environment; no other one is changed.
        confirm: Called with the commands before the first one runs; it raises to stop.
        progress: Called with each line that the installer prints.
        environ: Variables of the installer.

    Returns:
        The names of the packages that were put back or removed.

    Raises:
        UsageError: No state is saved.
        VerificationError: It could not be put back; the hint says exactly what to run.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.restore import last, put_back

    place = path_of(prefix, "prefix")
    path, state = last(place)
    names = put_back(place, state, Catalogue(), environ, progress, confirm)
    path.unlink()
    return names


def check_dockerfile(
    path: StrPath, machines: Sequence[Machine] | None = None, context: StrPath | None = None
) -> DockerfileReport:
    """Check what in a Dockerfile does not work on machines, and what to write instead.

    Args:
        path: The Dockerfile.
        machines: The machines that its image is for; this host if None.
        context: The directory that it is built from, whose requirement files are read; that of the file if None.

    Raises:
        UsageError: The file cannot be read, or is not a Dockerfile.
    """
    from envsolve import dockerfile
    from envsolve.dockerfile.read import read_file
    from envsolve.facts.catalogue import Catalogue
    from envsolve.system.files import is_folder

    file = path_of(path, "path")
    directory = file.parent if context is None else path_of(context, "context")
    if not is_folder(directory):
        raise UsageError(f"{directory} is not a directory", hint="name the directory that the image is built from")
    return dockerfile.check_dockerfile(read_file(file), machines_or_host(machines), Catalogue(), directory)
