"""The values of a diagnosis: what was seen, what follows from it, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from envsolve.machine.model import Machine

SCHEMA: Literal["envsolve.diagnosis/1"] = "envsolve.diagnosis/1"

Value = TypeVar("Value")


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
class Report:
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
class Probe:
    """One thing that was tried in an environment's own interpreter.

    Attributes:
        name: Stable name, ``torch-import``.
        gpu: The card that it was tried on; None where it needs none.
        outcome: ``crashes`` is an end by a signal or without a result, ``hangs`` one by the time limit.
        detail: What was seen: the error's own words, or how the process ended.
        printed: The last of what it printed, the traceback included.
        seconds: Wall time.
        seen: Facts by name: ``file`` and ``version`` of torch, ``mapped`` (files of CUDA libraries, one a line).
    """

    name: str
    gpu: str | None
    outcome: Literal["works", "fails", "crashes", "hangs", "skipped"]
    detail: str
    printed: str = ""
    seconds: float = 0.0
    seen: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it was tried and did not work."""
        return self.outcome not in ("works", "skipped")


@dataclass(frozen=True, slots=True)
class Remedy:
    """One way out.

    Attributes:
        text: What it does and what it costs.
        command: The command, ready to run; None where no command does it.
    """

    text: str
    command: str | None = None


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
