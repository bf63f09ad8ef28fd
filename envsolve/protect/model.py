"""The values of a guard: a command, what it would change, and what is to be said of that."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from packaging.utils import canonicalize_name

from envsolve.diagnose.model import Diagnosis
from envsolve.environment.model import Environment, needs, torch_distribution
from envsolve.errors import VerificationError
from envsolve.facts.catalogue import Catalogue

SCHEMA: Literal["envsolve.forecast/1"] = "envsolve.forecast/1"


class RefusedError(VerificationError):
    """A command was not run, since it would harm the torch of its environment."""


@dataclass(frozen=True, slots=True)
class Command:
    """An installer's command line, read.

    Attributes:
        words: As given.
        installer: Name of the module of :mod:`envsolve.protect.installers` that reads it.
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


# Which packages of an environment belong to its torch, and in which versions they are there.


#: torch itself by its names on package indexes and conda channels.
TORCH = frozenset({"torch", "pytorch"})
#: What decides a conda torch's flavour, or is a part of it.
_CONDA = frozenset({"pytorch", "pytorch-gpu", "pytorch-cpu", "pytorch-cuda", "libtorch", "cuda-version"})


def family_of(environment: Environment, catalogue: Catalogue) -> frozenset[str]:
    """The names of torch, of what must agree with it, and of what it needs of NVIDIA and Triton in this environment."""
    own = needs(environment, torch_distribution(environment))
    bound = {name for name in own if name.startswith(("nvidia-", "triton", "pytorch-triton"))}
    return frozenset({*catalogue.family, *_CONDA, *bound})


def version_of(environment: Environment, name: str, installer: str, *, exact: bool = False) -> str | None:
    """The version of a package that an installer sees in an environment; None where it sees none.

    Args:
        environment: The environment.
        name: Normalised name.
        installer: ``pip`` and ``uv`` see distributions, ``conda`` its own records.
        exact: With the build string, for conda: ``2.7.1=cuda126_py312_200``.
    """
    if installer != "conda":
        return next((d.version for d in environment.named(name) if _is_own(environment, d.site)), None)
    record = next((p for p in environment.conda if canonicalize_name(p.name) == canonicalize_name(name)), None)
    if record is None:
        return None
    return f"{record.version}={record.build}" if exact else record.version


def pins_of(environment: Environment, catalogue: Catalogue, installer: str) -> dict[str, str]:
    """The exact versions of what belongs to the environment's torch, by name; empty where it has no torch."""
    names = sorted(family_of(environment, catalogue))
    found = {name: version for name in names if (version := version_of(environment, name, installer, exact=True))}
    return found if TORCH & found.keys() else {}


def _is_own(environment: Environment, site: str) -> bool:
    found = environment.site(site)
    return found is not None and found.origin in ("environment", "user")


# A forecast in the words of a terminal. Pure.


_WIDTH = 100


def describe(found: Forecast) -> str:
    """What would happen, why that is no good, and what to do in its place."""
    if not found.changes:
        return f"torch and what belongs to it stay as they are in {found.prefix}."
    lines = [f"In {found.prefix}:", *(f"  {change.text}" for change in found.changes)]
    torch = next((c for c in found.changes if c.name in TORCH and c.after), None)
    if torch is not None and found.works is not None:
        says = {"yes": "runs on this machine", "no": "does not run on this machine", "unknown": "may run here or not"}
        lines += _wrapped(f"{torch.name} {torch.after} {says[found.works]}: {found.why}.")
    # Why torch itself does not run has been said.
    for diagnosis in found.causes if found.works != "no" else found.causes[1:]:
        lines += _wrapped(f"Afterwards: {diagnosis.cause}. {diagnosis.explanation}")
    if found.unasked:
        lines += _wrapped(f"The command does not ask for {' or '.join(found.unasked)}: others would drag it along.")
    return "\n".join([*lines, *_instead(found)])


def _instead(found: Forecast) -> Iterator[str]:
    """What to do in place of a command that is refused."""
    if found.keeps:
        yield "  This leaves them as they are:"
        yield f"      {found.keeps}"
        yield "  To have plain installs keep them from now on:"
        yield f"      envsolve guard --write --prefix {shlex.quote(found.prefix)}"
        return
    if found.unasked:
        held = " ".join(f"{c.name}=={c.before}" for c in found.changes if c.name in found.unasked)
        yield from _wrapped(
            f"The installer finds nothing that leaves {held} in place. `envsolve plan` finds what goes together; "
            "keep it in an environment of its own."
        )
    for diagnosis in found.causes[:1]:
        for remedy in [r for r in diagnosis.remedies if r.command][:1]:
            yield "  In its place:"
            yield f"      {remedy.command}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
