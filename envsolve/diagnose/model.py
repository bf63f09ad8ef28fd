"""The values of a diagnosis: what was seen, what follows from it, and what to do."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Generic, Literal, TypeVar

from envsolve.machine.model import Machine
from envsolve.solve.outcome import Fix as Fix
from envsolve.verify.report import Probe

SCHEMA: Literal["envsolve.diagnosis/1"] = "envsolve.diagnosis/1"

Value = TypeVar("Value")
Remedy = Fix


@dataclass(frozen=True, slots=True)
class Seen(Generic[Value]):
    """One fact and where it stands.

    Attributes:
        value: The fact.
        where: What it was read from: ``line 12``, ``--installed``, ``--machine``, a file of an environment.
        quote: The words it was read out of, shortened to one line.
    """

    value: Value
    where: str
    quote: str


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """What is known of a broken environment, however it was learnt; the one value that causes are weighed on.

    Attributes:
        text: The error text or report; empty where an environment alone is looked at.
        machine: The machine, as given or read out of the text; fields that nothing tells are None.
        installed: Version of each package by normalised name, local part included (``2.8.0+cu128``).
        python: Version of the interpreter, ``3.12``.
        cuda: The toolkit that torch was built with (``torch.version.cuda``), ``12.8``; ``none`` for a CPU build.
        arch_list: GPU code that the installed torch says it carries, ``("sm_70", "compute_70")``.
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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One root cause.

    Attributes:
        cause: A code of ``docs/causes.md``.
        confidence: 0 to 1: how often a diagnosis like this one was right on the known cases.
        explanation: At most three sentences that teach what happened.
        evidence: What it rests on, each with where it was seen.
        remedies: The least change first.
    """

    cause: str
    confidence: float
    explanation: str
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True)
class Diagnoses:
    """The answer of ``envsolve diagnose``.

    Attributes:
        diagnoses: Most likely first; empty where the cause is not known.
        ruled_out: What was checked and does not hold, for when the cause is not known.
        next_steps: What to run to learn more.
        probes: What was tried, where that was asked for.
    """

    schema: Literal["envsolve.diagnosis/1"]
    diagnoses: tuple[Diagnosis, ...]
    ruled_out: tuple[str, ...] = ()
    next_steps: tuple[Remedy, ...] = ()
    probes: tuple[Probe, ...] = ()


# What the weighing of one cause gives: a finding with its grounds, or what is ruled out.


class Grounds(str, Enum):
    """What a finding stands on, best first. The precision of each is in ``index_data/precisions.json``."""

    #: Words of an error, and rules or catalogue facts that confirm them for this build and machine.
    CONFIRMED = "confirmed"
    #: Words of an error that name one cause, and nothing that contradicts them.
    STATED = "stated"
    #: Files of an environment, and rules: they leave no way for it to work, whatever the error says.
    READ = "read"
    #: Words of an error that several causes share; circumstances speak for this one.
    SUGGESTED = "suggested"
    #: Facts and rules alone: the parts cannot work together, but no words of an error say so.
    DERIVED = "derived"
    #: Files of an environment that show what often does harm, and may do none here.
    NOTICED = "noticed"

    @property
    def rank(self) -> int:
        """0 for the best grounds; larger is worse."""
        return list(Grounds).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that a weighing found.

    Attributes:
        explains: Other causes that are mere consequences of this one: they are told after it.
    """

    cause: str
    grounds: Grounds
    explanation: str
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...] = ()
    explains: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True, slots=True)
class RuledOut:
    """What was looked at and does not hold, in words."""

    text: str


# Whether a text can hold a word at all: asked of the few distinct words of a large text in place of all of it.
#
# A log of ten megabytes has some thousand distinct words, and hundreds of literals are looked for in it, nearly all
# of
# which it does not have. The distinct words are gathered in one pass; a literal is looked for only where they allow
# it.


_LETTERS = bytes(byte if chr(byte).islower() and byte < 128 else 0x20 for byte in range(256))


class Vocabulary:
    """The distinct runs of ASCII letters of a lower-case text."""

    def __init__(self, lowered: str) -> None:
        """Gather them; what is no ASCII letter only separates."""
        runs = set(lowered.encode("ascii", "replace").translate(_LETTERS).split())
        self._runs = b" ".join(runs).decode("ascii")

    def allows(self, word: str) -> bool:
        """Whether the text may hold ``word`` (lower case, ASCII). False is certain, True is not."""
        return _longest_run(word) in self._runs


@lru_cache(maxsize=4096)
def _longest_run(word: str) -> str:
    return max(re.findall("[a-z]+", word), key=len, default="")


# Diagnoses in the words of a terminal. Pure.


_WIDTH = 100
_EVIDENCE = 6


def describe(found: Diagnoses, nothing: str = "No cause is known for this.") -> str:
    """Every diagnosis with its cause, what happened, what shows it, and the ways out; or what to do without one.

    Args:
        found: The answer.
        nothing: What is said where it names no cause.
    """
    lines: list[str] = []
    for diagnosis in found.diagnoses:
        lines += [*_diagnosis(diagnosis), ""]
    if not found.diagnoses:
        lines += [nothing, ""]
    if found.probes:
        lines += ["Tried:", *(line for probe in found.probes for line in _probe(probe)), ""]
    if found.ruled_out:
        lines += ["Looked at and set aside:", *(line for text in found.ruled_out for line in _item(text)), ""]
    if found.next_steps:
        lines += ["What to run next:", *(line for step in found.next_steps for line in _remedy(step)), ""]
    return "\n".join(lines).rstrip()


def _diagnosis(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"{diagnosis.cause}  (right in {diagnosis.confidence:.0%} of the known cases like this)"
    yield from textwrap.wrap(diagnosis.explanation, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    yield "  Evidence:"
    for text in diagnosis.evidence[:_EVIDENCE]:
        yield from _item(text)
    yield "  What to do, the least change first:"
    for remedy in diagnosis.remedies:
        yield from _remedy(remedy)


def _probe(probe: Probe) -> Iterator[str]:
    """How it ended; of an error as much as tells it."""
    where = f" [{probe.gpu}]" if probe.gpu else ""
    lines = probe.detail.strip().splitlines() or [""]
    yield from _item(f"{probe.name}{where} {probe.outcome}: {lines[0]}")
    if probe.failed:
        yield from (f"      {line[:_WIDTH]}" for line in lines[1:_EVIDENCE])


def _item(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  - ", subsequent_indent="    ")


def _remedy(remedy: Remedy) -> Iterator[str]:
    yield from _item(remedy.text)
    if remedy.command:
        yield f"      {remedy.command}"
