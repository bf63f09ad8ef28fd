"""The values of a guard: a command, what it would change, and what is to be said of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from envsolve.diagnose.model import Diagnosis
from envsolve.errors import VerificationError

SCHEMA: Literal["envsolve.forecast/1"] = "envsolve.forecast/1"


class RefusedError(VerificationError):
    """A command was not run, since it would harm the torch of its environment."""


@dataclass(frozen=True, slots=True)
class Command:
    """An installer's command line, read.

    Attributes:
        words: As given.
        installer: Name of the module of :mod:`envsolve.guard.installers` that reads it.
        rehearsal: The same command as a dry run whose answer can be read; None where it changes no environment.
        prefix: The environment that it acts on; None where only the dry run tells.
        asked: Names of the packages that it asks for; None where all that it changes is asked for.
    """

    words: tuple[str, ...]
    installer: str
    rehearsal: tuple[str, ...] | None = None
    prefix: Path | None = None
    asked: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one package.

    Attributes:
        name: Normalised name.
        before: Its version, local part included; None where it is not installed.
        after: Likewise; None where it is removed.
        filename: The wheel that comes, where the installer tells it.
        build: The build string that comes, for conda; ``subdir`` is its platform, ``linux-64``.
        replaces: The build string that goes.
        flavour: The flavour of a torch that comes, as the catalogue knows it, ``cu132``.
    """

    name: str
    before: str | None
    after: str | None
    filename: str | None = None
    build: str | None = None
    subdir: str | None = None
    replaces: str | None = None
    flavour: str | None = None

    @property
    def is_another(self) -> bool:
        """Whether another version or build comes, none, or the first."""
        return (self.before, self.replaces) != (self.after, self.build)

    @property
    def text(self) -> str:
        """``torch 2.14.1+cu126 would be replaced by 2.15.0 (cu132)``."""
        more = self.build or self.flavour
        after = f"{self.after} ({more})" if more and not (self.after or "").endswith(f"+{more}") else self.after
        before = f"{self.before} ({self.replaces})" if self.replaces else self.before
        if self.before is None:
            return f"{self.name} {after} would be installed"
        if self.after is None:
            return f"{self.name} {before} would be removed"
        if not self.is_another:
            return f"{self.name} {before} would be installed anew"
        return f"{self.name} {before} would be replaced by {after}"


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What an installer said that it would do.

    Attributes:
        prefix: The environment, where it told.
        changes: Every package that comes or goes; ``before`` is None where it told only what comes.
    """

    prefix: Path | None
    changes: tuple[Change, ...]


class Installer(Protocol):
    """Reads the command lines of one installer, and the answers of its dry runs."""

    def read(self, words: Sequence[str], environ: Mapping[str, str]) -> Command | None:
        """The command that ``words`` are; None where they are not of this installer.

        Raises:
            UsageError: The command cannot be rehearsed; the hint says what to do in its place.
        """

    def rehearsed(self, out: str, err: str) -> Rehearsed:
        """What a dry run printed, understood.

        Raises:
            ValueError: It is not the answer of a dry run.
        """

    def keeping(self, command: Command, versions: Mapping[str, str]) -> tuple[str, ...]:
        """The command line with packages held at the versions (and builds, for conda) that they have."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a command would do to the torch family of an environment.

    Attributes:
        command: The command line.
        prefix: The environment.
        changes: What it would do to the family and to what torch needs; what else it changes is left out.
        unasked: Names of those of them that would be replaced or removed though the command does not ask for them.
        works: Whether the torch that comes runs on the machine; None where none comes.
        why: What decides that.
        causes: What a diagnosis of the environment afterwards would find, and one of today does not.
        keeps: A command that does the same and leaves the family as it is, rehearsed; None where there is none.
        refused: Whether the command should not be run.
    """

    schema: Literal["envsolve.forecast/1"]
    command: str
    prefix: str
    changes: tuple[Change, ...] = ()
    unasked: tuple[str, ...] = ()
    works: Literal["yes", "no", "unknown"] | None = None
    why: str | None = None
    causes: tuple[Diagnosis, ...] = field(default=())
    keeps: str | None = None
    refused: bool = False
