"""The values of a diagnosis: facts and their origin, findings, and the answer."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Generic, Literal, TypeVar

from packaging.version import InvalidVersion, Version

from envsolve.machine.model import Machine
from envsolve.rules.verdict import Fix as Fix
from envsolve.verify.report import Probe

SCHEMA: Literal["envsolve.diagnosis/1"] = "envsolve.diagnosis/1"

#: ``certain``: an error names the cause, facts and rules confirm it, and nothing else explains the report. ``likely``:
#: an error or the files name it and nothing contradicts it. ``possible``: only circumstances point to it.
Certainty = Literal["certain", "likely", "possible"]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Seen(Generic[Value]):
    """One fact and its origin.

    Attributes:
        value: The fact.
        where: Where it was read: ``line 12``, ``--installed``, ``--machine``, a file of an environment.
        quote: The words that it was read from, shortened to one line.
    """

    value: Value
    where: str
    quote: str


def shown(seen: Seen[str] | Seen[tuple[str, ...]]) -> str:
    """A fact as evidence: ``line 12: torch==2.8.0+cu128``."""
    return f"{seen.where}: {seen.quote}" if seen.quote else seen.where


def public(installed: Mapping[str, Seen[str]], package: str) -> str | None:
    """The public version of an installed package, without its local part; None for a word that is no version."""
    seen = installed.get(package)
    version = seen.value.partition("+")[0] if seen else ""
    try:
        return version if Version(version) else None
    except InvalidVersion:  # a word of a damaged report
        return None


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """The facts about a broken environment, from a text, options and files; causes are weighed on this value.

    Attributes:
        text: The error text or report; empty if only an environment is read.
        machine: The machine, as given or read from the text; unknown fields are None.
        installed: Version of each package by normalised name, local part included (``2.8.0+cu128``).
        wheels: Those of ``installed`` that are known to be wheels of an index: only a version with a local part is of
            another index than the default one.
        python: Version of the interpreter, ``3.12``.
        cuda: The toolkit that torch was built with (``torch.version.cuda``), ``12.8``; ``none`` for a CPU build.
        arch_list: GPU code that the installed torch reports to contain, ``("sm_70", "compute_70")``.
        nvcc: Version of the nvcc that a build ran, ``12.1``.
        images: Container images named, ``nvidia/cuda:12.8.0-base-ubuntu22.04``.
        commands: Shell commands that the text shows, in order.
        variables: Environment variables that the text shows.
    """

    text: str
    machine: Machine
    installed: Mapping[str, Seen[str]] = field(default_factory=dict)
    python: Seen[str] | None = None
    cuda: Seen[str] | None = None
    arch_list: Seen[tuple[str, ...]] | None = None
    nvcc: Seen[str] | None = None
    images: tuple[Seen[str], ...] = ()
    commands: tuple[Seen[str], ...] = ()
    variables: Mapping[str, Seen[str]] = field(default_factory=dict)
    wheels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One root cause.

    Attributes:
        cause: A code of ``docs/causes.md``.
        certainty: How sure it is, in words: :data:`Certainty`.
        confidence: 0 to 1: how often a diagnosis like this one was right on the known cases.
        explanation: At most three sentences that teach what happened.
        evidence: What it is based on, each with its place.
        fixes: Fixes, the smallest change first.
    """

    cause: str
    confidence: float
    explanation: str
    evidence: tuple[str, ...]
    remedies: tuple[Fix, ...]
    certainty: Certainty = "possible"


@dataclass(frozen=True, slots=True)
class Diagnoses:
    """The answer of ``envsolve diagnose``.

    Attributes:
        diagnoses: Most likely first; empty if the cause is not known.
        meanings: The meaning of words that are about something else than a broken environment, and what to do about it.
        ruled_out: What was checked and does not apply, for when the cause is not known.
        next_steps: What to run to learn more.
        probes: What was tried, if that was requested.
    """

    schema: Literal["envsolve.diagnosis/1"]
    diagnoses: tuple[Diagnosis, ...]
    meanings: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    next_steps: tuple[Fix, ...] = ()
    probes: tuple[Probe, ...] = ()


# What a cause makes of a report: a finding with its grounds, or what is ruled out.


class Grounds(str, Enum):
    """The basis of a finding, best first. The precision of each is in ``index_data/precisions.json``."""

    #: Words of an error, and rules or catalogue facts that confirm them for this build and machine.
    CONFIRMED = "confirmed"
    #: Words of an error that name one cause, and nothing that contradicts them.
    STATED = "stated"
    #: Files of an environment, and rules: it cannot work, whatever the error says.
    READ = "read"
    #: Words of an error that several causes share; circumstances point to this one.
    SUGGESTED = "suggested"
    #: Only facts and rules: the parts cannot work together, but no words of an error say so.
    DERIVED = "derived"
    #: Files of an environment that show what often does harm, and may do none here.
    NOTICED = "noticed"

    @property
    def rank(self) -> int:
        """0 for the best grounds; larger is worse."""
        return list(Grounds).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that was found.

    Attributes:
        explains: Other causes that are consequences of this one: they are listed after it.
        beside_torch: Whether torch runs all the same: only other packages are broken.
    """

    cause: str
    grounds: Grounds
    explanation: str
    evidence: tuple[str, ...]
    remedies: tuple[Fix, ...] = ()
    explains: frozenset[str] = field(default=frozenset())
    beside_torch: bool = False


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A cause that was checked and does not apply, in words."""

    text: str


# A log of ten megabytes has some thousand distinct words, and hundreds of literals are searched in it, nearly all of
# which it does not contain. The distinct words are gathered in one pass; a literal is searched only if they allow it.


_LETTERS = bytes(byte if chr(byte).islower() and byte < 128 else 0x20 for byte in range(256))


class Vocabulary:
    """The distinct words (runs of ASCII letters) of a lower-case text."""

    def __init__(self, lowered: str) -> None:
        """Collect the words; everything except ASCII letters separates them."""
        runs = set(lowered.encode("ascii", "replace").translate(_LETTERS).split())
        self._runs = b" ".join(runs).decode("ascii")

    def allows(self, word: str) -> bool:
        """Whether the text may contain ``word`` (lower case, ASCII). False is certain, True is not."""
        return _longest_run(word) in self._runs


@lru_cache(maxsize=4096)
def _longest_run(word: str) -> str:
    return max(re.findall("[a-z]+", word), key=len, default="")


# Diagnoses as text for a terminal. Pure.


#: The width of text that is not for a terminal: a file, or a pipe.
WIDTH = 100
_EVIDENCE = 6


def describe(found: Diagnoses, nothing: str = "No cause is known for this.", width: int = WIDTH) -> str:
    """Every diagnosis with its cause, explanation, evidence and fixes; or what to do without one.

    Args:
        found: The answer.
        nothing: The text if it names no cause.
        width: The longest line, in columns. Commands are never broken, so that they can be copied.
    """
    lines: list[str] = []
    for diagnosis in found.diagnoses:
        lines += [*_diagnosis(diagnosis, width), ""]
    if not found.diagnoses and not found.meanings:
        lines += [nothing, ""]
    if found.meanings:
        title = "What other messages in it mean:" if found.diagnoses else "What the error means:"
        lines += [title, *(line for text in found.meanings for line in wrapped(text, width, "  - ")), ""]
    if found.probes:
        lines += ["Tried:", *(line for probe in found.probes for line in _probe(probe, width)), ""]
    if found.ruled_out:
        lines += [
            "Checked and ruled out:",
            *(line for text in found.ruled_out for line in wrapped(text, width, "  - ")),
            "",
        ]
    if found.next_steps:
        title = "If that does not help, run next:" if found.meanings else "What to run next:"
        lines += [title, *(line for step in found.next_steps for line in _fix(step, width)), ""]
    return "\n".join(lines).rstrip()


def wrapped(text: str, width: int, lead: str = "  ") -> list[str]:
    """The lines of a paragraph, the first after a lead and the others below its text; URLs and names stay whole."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _diagnosis(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    yield f"{diagnosis.cause}  ({diagnosis.certainty})"
    yield from wrapped(diagnosis.explanation, width)
    yield "  Evidence:"
    for text in diagnosis.evidence[:_EVIDENCE]:
        yield from wrapped(text, width, "  - ")
    yield "  What to do, the smallest change first:"
    for fix in diagnosis.remedies:
        yield from _fix(fix, width)


def _probe(probe: Probe, width: int) -> Iterator[str]:
    """How a probe ended, with the first lines of an error."""
    where = f" [{probe.gpu}]" if probe.gpu else ""
    lines = probe.detail.strip().splitlines() or [""]
    yield from wrapped(f"{probe.name}{where} {probe.outcome}: {lines[0]}", width, "  - ")
    if probe.failed:
        yield from (f"      {line[:width]}" for line in lines[1:_EVIDENCE])


def _fix(fix: Fix, width: int) -> Iterator[str]:
    first, *lines = fix.text.split("\n")
    yield from wrapped(first, width, "  - ")
    yield from (f"      {line}" for line in lines)
    if fix.command:
        yield f"      {fix.command}"
