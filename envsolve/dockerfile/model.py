"""A Dockerfile as it is checked: its stages, the commands that they run, what holds there, and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from packaging.markers import Marker
from packaging.requirements import Requirement

from envsolve.machine.model import Platform


@dataclass(frozen=True, slots=True)
class Copied:
    """Files that COPY or ADD puts into a stage from the build context, or a mount of RUN for one command.

    Attributes:
        sources: Paths in the context; none for a document that is written in the Dockerfile itself, and for files of
            other stages and images.
        target: As written, relative to ``directory``.
        directory: The working directory.
        document: The text of such a document.
    """

    sources: tuple[str, ...]
    target: str
    directory: str
    document: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command of a RUN instruction.

    Attributes:
        line: The line on which its instruction begins, from 1.
        words: Without quotes, and with the variables that the file sets resolved.
        variables: The variables in force.
        directory: The working directory.
        copied: What its stage has from the context by then, in order.
    """

    line: int
    words: tuple[str, ...]
    variables: Mapping[str, str]
    directory: str = "/"
    copied: tuple[Copied, ...] = ()

    @property
    def program(self) -> str:
        """The name of the program, without its directory."""
        return self.words[0].rpartition("/")[2]


def other_installer(command: Command) -> str | None:
    """The command that installs packages unread, such as ``conda install`` or ``uv sync``; None for other commands."""
    verbs = [word for word in command.words[1:] if not word.startswith("-")]
    known = {
        "conda": ("install", "create", "env"),
        "uv": ("sync", "add"),
        "poetry": ("install", "add"),
        "pdm": ("install", "sync", "add"),
        "pipenv": ("install", "sync"),
        "pixi": ("install", "add"),
    }
    known |= dict.fromkeys(("mamba", "micromamba"), known["conda"])
    return f"{command.program} {verbs[0]}" if verbs and verbs[0] in known.get(command.program, ()) else None


@dataclass(frozen=True, slots=True)
class Text:
    """An instruction as written, with the documents inside it.

    Attributes:
        line: The line on which it begins, from 1.
        name: ``RUN``, in capitals; any other word for a line that is not an instruction.
    """

    line: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, and the earlier stage that it is built on.

    Attributes:
        line: The line of its FROM.
        image: The image that it starts from, with variables resolved; the name of the earlier stage, if there is one.
        commands: The commands of this stage, without those of ``base``, in order.
        variables: ENV and ARG in force at its end.
        platform: Value of ``FROM --platform``; empty for the platform of the build.
        texts: Its instructions that run something, and lines that are not instructions.
        outside: Names that ARG declares before the first FROM. No stage sees them unless it declares them again.
    """

    line: int
    image: str
    name: str | None
    base: Stage | None
    commands: tuple[Command, ...]
    variables: Mapping[str, str]
    platform: str = ""
    texts: tuple[Text, ...] = ()
    outside: frozenset[str] = frozenset()

    @property
    def root(self) -> Stage:
        """The stage that starts from an image."""
        return self.base.root if self.base else self

    def history(self) -> Iterator[Command]:
        """Every command that led to it."""
        if self.base:
            yield from self.base.history()
        yield from self.commands

    def followed(self) -> Iterator[tuple[Command, bool]]:
        """Every command that led to it, and whether the command is of this stage and not of an earlier one."""
        earlier = self.base.history() if self.base else ()
        yield from ((command, False) for command in earlier)
        yield from ((command, True) for command in self.commands)


Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a Dockerfile that fails on a target machine, or that can make it fail.

    Attributes:
        line: From 1.
        code: Stable name: ``unpublished-build``.
        level: ``error`` if it fails on a machine, ``warning`` if it can.
        text: What is wrong, and why.
        fixes: What to write instead, the smallest change first.
        source: Title of the source of the fact behind it.
    """

    line: int
    code: str
    level: Severity
    text: str
    remedies: tuple[str, ...] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Something that decides whether torch works but was not judged, and why."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of ``envsolve check-dockerfile``, in the order of the file."""

    schema: Literal["envsolve.dockerfile-check/1"] = "envsolve.dockerfile-check/1"
    findings: tuple[Finding, ...] = field(default=())
    unjudged: tuple[Unjudged, ...] = field(default=())


def describe(report: Report, name: str = "Dockerfile") -> str:
    """The report as text: each finding with what to write instead, then what was not judged.

    Args:
        report: The report.
        name: Name of the file.
    """
    parts = []
    for finding in report.findings:
        lines = [f"{name}:{finding.line}: {finding.level}: {finding.text} [{finding.code}]"]
        lines += [f"    {'->' if number == 0 else 'or'} {remedy}" for number, remedy in enumerate(finding.remedies)]
        parts.append("\n".join(lines))
    if not parts and not report.unjudged:
        parts = [f"{name}: no fault found; nothing would fail on the machines"]
    elif not parts:
        parts = [f"{name}: no fault found, but some lines could not be checked"]
    if report.unjudged:
        parts.append("\n".join(f"{name}:{one.line}: not checked: {one.text}" for one in report.unjudged))
    return "\n\n".join(parts)


def marker_holds(
    marker: Marker | None, platform: Platform | None, python: str | None, extras: Iterable[str] = ()
) -> bool | None:
    """Whether a marker holds on a machine with any of the given extras; None if that is not known."""
    if marker is None:
        return True
    text = str(marker)
    if ("extra" in text and not extras) or ("python" in text and python is None):
        return None
    environment = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    if platform is not None and platform.arch:
        environment["platform_machine"] = platform.arch
    elif "platform_machine" in text:
        return None
    if python is not None:
        environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    return any(marker.evaluate({**environment, "extra": extra}) for extra in extras or ("",))


@lru_cache(maxsize=10_000)
def held(line: str, platform: Platform | None, pythons: tuple[str, ...], extras: tuple[str, ...]) -> Requirement | None:
    """A requirement without its marker, if that may hold. Each stage and each image that is tried asks again."""
    requirement = Requirement(line)
    if all(marker_holds(requirement.marker, platform, python, extras) is False for python in pythons):
        return None
    requirement.marker = None
    return requirement
