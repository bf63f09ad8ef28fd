"""Diagnoses in the words of a terminal. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from envsolve.diagnose.model import Diagnoses, Diagnosis, Probe, Remedy

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
