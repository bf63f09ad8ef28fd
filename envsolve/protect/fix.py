"""The least remedy of an environment: what it would do, doing it, and looking whether it helped."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envsolve.diagnose.environment import answer
from envsolve.diagnose.model import Diagnosis
from envsolve.environment.read import read_outline
from envsolve.errors import EnvsolveError, ImpossibleError, InterruptedBySignalError, VerificationError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from envsolve.protect.installers import rehearse
from envsolve.protect.model import Change, version_of
from envsolve.protect.restore import State, carry_out, packages_of, put_back, save, steps_of
from envsolve.system.processes import signals_raised


@dataclass(frozen=True, slots=True)
class Mending:
    """What would be done.

    Attributes:
        prefix: The environment.
        cause: What it mends.
        remedy: What it does and costs, in words.
        command: The remedy's command.
        changes: What the installers' dry runs say that becomes of the packages.
    """

    prefix: str
    cause: str
    remedy: str
    command: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Mended:
    """What came of it.

    Attributes:
        state: The file that holds the state before.
        remaining: What is still, or newly, wrong.
    """

    state: str
    remaining: tuple[Diagnosis, ...]


def look(prefix: Path, machines: Sequence[Machine], catalogue: Catalogue, environ: Mapping[str, str]) -> Mending | None:
    """The first remedy of the first diagnosis of an environment, rehearsed; None where nothing is wrong.

    Raises:
        ImpossibleError: That remedy is none that pip or uv carries out.
        EnvsolveError: The installer says that it cannot.
    """
    found = answer("", machines, None, prefix, catalogue, environ).diagnoses
    if not found:
        return None
    environment = read_outline(prefix, environ)
    first, remedy = found[0], found[0].remedies[0]
    if remedy.command is None:
        raise ImpossibleError(f"{first.cause} is mended by no command", hint=remedy.text)
    changes: list[Change] = []
    for step in steps_of(remedy.command, environment.prefix, environ):
        if step.command.rehearsal is None:
            gone = (package.name for package in packages_of(environment) if package.name in step.command.words)
            changes += [Change(name, version_of(environment, name, "pip"), None) for name in gone]
            continue
        told = rehearse(step.command, {**environ, **step.variables}).changes
        changes += [replace(c, before=c.before or version_of(environment, c.name, "pip")) for c in told]
    return Mending(environment.prefix, first.cause, remedy.text, remedy.command, tuple(changes))


def mend(
    mending: Mending,
    machines: Sequence[Machine],
    catalogue: Catalogue,
    environ: Mapping[str, str],
    on_line: Callable[[str], None],
) -> Mended:
    """Do it: save the state, run the command, and diagnose again; put the state back where that does not help.

    Raises:
        VerificationError: It failed or did not help; the message says how the environment stands now.
    """
    prefix = Path(mending.prefix)
    environment = read_outline(prefix, environ)
    steps = steps_of(mending.command, mending.prefix, environ)
    state = State(
        prefix=mending.prefix, cause=mending.cause, commands=(mending.command,), packages=packages_of(environment)
    )
    path = save(state)
    try:
        with signals_raised(signal.SIGINT, hint="the environment is as it was before"):
            carry_out(steps, environ, on_line)
            remaining = answer("", machines, None, prefix, catalogue, environ).diagnoses
    except EnvsolveError as error:
        put_back(state, catalogue, environ, on_line)
        path.unlink()
        if isinstance(error, InterruptedBySignalError):
            raise
        message = f"{error.message}\nThe environment is as it was before."
        raise VerificationError(message, hint=error.hint) from error
    if any(diagnosis.cause == mending.cause for diagnosis in remaining):
        put_back(state, catalogue, environ, on_line)
        path.unlink()
        raise VerificationError(
            f"{mending.cause} remained, so the environment was put back as it was before",
            hint="see all remedies with `envsolve diagnose`",
        )
    return Mended(str(path), remaining)
