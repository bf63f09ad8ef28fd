"""The first fix of an environment: what it would do, carrying it out, and checking that it helped."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from envsolve.diagnose.environment import answer
from envsolve.diagnose.model import Diagnosis
from envsolve.environment.read import read_outline
from envsolve.errors import EnvsolveError, ImpossibleError, InterruptedBySignalError, VerificationError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from envsolve.packages.commands import Change, installer
from envsolve.protect.dry_run import run_dry
from envsolve.protect.keep import version_of
from envsolve.protect.restore import State, carry_out, packages_of, put_back, save, steps_of
from envsolve.system.processes import signals_raised


@dataclass(frozen=True, slots=True)
class Fix:
    """A fix to be applied.

    Attributes:
        prefix: The environment.
        cause: The cause that it removes.
        fix: What it does and costs, in words.
        command: Its command.
        changes: What the installers' dry runs say would happen to the packages.
    """

    prefix: str
    cause: str
    remedy: str
    command: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """The outcome.

    Attributes:
        state: The file that holds the state before.
        remaining: What is still, or newly, wrong.
    """

    state: str
    remaining: tuple[Diagnosis, ...]


def find_fix(prefix: Path, machines: Sequence[Machine], catalogue: Catalogue, environ: Mapping[str, str]) -> Fix | None:
    """The first fix of the first diagnosis of an environment, tried as a dry run; None if nothing is wrong.

    Raises:
        ImpossibleError: The fix is not a command that pip or uv can run.
        EnvsolveError: The installer cannot do it.
    """
    # The fix of the first diagnosis: later ones are often consequences of it.
    found = answer("", machines, None, prefix, catalogue, environ).diagnoses
    if not found:
        return None
    environment = read_outline(prefix, environ)
    first, remedy = found[0], found[0].remedies[0]
    if remedy.command is None:
        raise ImpossibleError(f"no command fixes {first.cause} automatically", hint=remedy.text)
    changes: list[Change] = []
    for step in steps_of(remedy.command, environment.prefix, environ):
        if installer(step.command.installer).dry_run(step.command) is None:
            # pip uninstall has no dry run, and removes exactly what it is told to.
            gone = (p.name for p in packages_of(environment) if p.name in step.command.requirements)
            changes += [Change(name, version_of(environment, name, "pip"), None) for name in gone]
            continue
        _, planned = run_dry(step.command, {**environ, **step.variables})
        changes += [structs.replace(c, before=c.before or version_of(environment, c.name, "pip")) for c in planned]
    return Fix(environment.prefix, first.cause, remedy.text, remedy.command, tuple(changes))


def apply_fix(
    fix: Fix,
    machines: Sequence[Machine],
    catalogue: Catalogue,
    environ: Mapping[str, str],
    on_line: Callable[[str], None],
) -> Fixed:
    """Save the state, run the command, and diagnose again; restore the state if that does not help.

    Raises:
        VerificationError: It failed or did not help; the message says what state the environment is in.
    """
    prefix = Path(fix.prefix)
    environment = read_outline(prefix, environ)
    steps = steps_of(fix.command, fix.prefix, environ)
    state = State(prefix=fix.prefix, cause=fix.cause, commands=(fix.command,), packages=packages_of(environment))
    # Saved before anything runs, so that even a killed process leaves a state to restore.
    path = save(state)
    try:
        with signals_raised(signal.SIGINT, hint="the environment is as it was before"):
            carry_out(steps, environ, on_line)
            remaining = answer("", machines, None, prefix, catalogue, environ).diagnoses
    except EnvsolveError as error:
        put_back(Path(state.prefix), state, catalogue, environ, on_line)
        path.unlink()
        if isinstance(error, InterruptedBySignalError):
            raise
        message = f"{error.message}\nThe environment is as it was before."
        raise VerificationError(message, hint=error.hint) from error
    # A fix that leaves its own cause is wrong about this environment, whatever else it improved.
    if any(diagnosis.cause == fix.cause for diagnosis in remaining):
        put_back(Path(state.prefix), state, catalogue, environ, on_line)
        path.unlink()
        raise VerificationError(
            f"{fix.cause} remained, so the environment was restored to its previous state",
            hint="see all fixes with `envsolve diagnose`",
        )
    return Fixed(str(path), remaining)
