"""A Dockerfile as it is checked: stages, the commands that they run, and what was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Copied:
    """What COPY or ADD puts into a stage from the build context, or a mount of RUN for one command.

    Attributes:
        sources: Paths in the context; none for a document that the file holds itself.
        target: As it is written; relative to ``folder``.
        folder: The working directory there.
        document: The text of such a document.
    """

    sources: tuple[str, ...]
    target: str
    folder: str
    document: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command of a RUN instruction.

    Attributes:
        line: Where its instruction begins, from 1.
        words: With quotes and the variables that the file sets resolved.
        variables: What is in force for it.
        folder: Where it runs.
        copied: What its stage has from the context by then, in order.
    """

    line: int
    words: tuple[str, ...]
    variables: Mapping[str, str]
    folder: str = "/"
    copied: tuple[Copied, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """An instruction as it is written, with the documents inside it.

    Attributes:
        line: Where it begins, from 1.
        name: ``RUN``, in capitals; whatever stands there where it is no instruction.
    """

    line: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, and the earlier stage that it is built on.

    Attributes:
        line: Of its FROM.
        image: The image that it starts from, with variables resolved; where it is built on an earlier stage, its name.
        commands: Those of this stage alone, in order.
        variables: ENV and ARG in force at its end.
        platform: Of ``FROM --platform``; empty where it is that of the build.
        texts: Its instructions that run something, and what is no instruction.
        outside: Names that ARG declares before the first FROM, and that no stage sees unless it declares them again.
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


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a Dockerfile that will not work on the machines meant, or that puts what works at risk.

    Attributes:
        line: From 1.
        code: Stable name: ``unpublished-build``.
        level: ``error`` where it fails on a machine, ``warning`` where it can.
        text: What is wrong, and why.
        remedies: What to write in its place, the least change first.
        source: Title of the source of the fact that it rests on.
    """

    line: int
    code: str
    level: Literal["error", "warning"]
    text: str
    remedies: tuple[str, ...] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Something that decides about CUDA and was not judged, and why."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of ``envsolve check-dockerfile``, in the order of the file."""

    schema: Literal["envsolve.dockerfile-check/1"] = "envsolve.dockerfile-check/1"
    findings: tuple[Finding, ...] = field(default=())
    unjudged: tuple[Unjudged, ...] = field(default=())


# A report in words, for a person. Pure.


def describe(report: Report, name: str = "Dockerfile") -> str:
    """The findings in the order of the file, each with what to write in its place; then what was not judged.

    Args:
        name: Of the file.
    """
    parts = ["\n".join(lines) for lines in _findings(report, name)]
    if not parts:
        parts = [f"{name}: nothing found that would fail on the machines"]
    if report.unjudged:
        parts.append("\n".join(f"{name}:{one.line}: not judged: {one.text}" for one in report.unjudged))
    return "\n\n".join(parts)


def _findings(report: Report, name: str) -> Iterator[list[str]]:
    for finding in report.findings:
        lines = [f"{name}:{finding.line}: {finding.level}: {finding.text} [{finding.code}]"]
        lines += [f"    {'->' if number == 0 else 'or'} {remedy}" for number, remedy in enumerate(finding.remedies)]
        yield lines
