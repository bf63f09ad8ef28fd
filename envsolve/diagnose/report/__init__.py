"""Reading a machine and an environment out of what people send: a traceback, a log, a whole issue.

Readers (one module a kind of text, in ``readers``) take observations from lines; ``merge`` weighs them against each
other; ``machine`` makes the machine. What is given beside the text wins over what is read out of it. A number that
might be something else is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envsolve.catalogue.load import Catalogue
from envsolve.diagnose.model import Report, Seen
from envsolve.diagnose.report.installed import read_installed
from envsolve.diagnose.report.machine import laid_over, machine_of
from envsolve.diagnose.report.merge import packages, scalars, seen
from envsolve.diagnose.report.observation import Codes, Command, Field, Image, Observation, Variable
from envsolve.diagnose.report.readers import observe
from envsolve.diagnose.report.text import Log, decode
from envsolve.machine.model import Machine

__all__ = ["decode", "read_installed", "read_report"]


def read_report(
    text: str,
    catalogue: Catalogue,
    *,
    machine: Machine | None = None,
    installed: Mapping[str, Seen[str]] | None = None,
) -> Report:
    """What a text tells of a machine and an environment.

    Args:
        text: An error, a log or a report; see :func:`decode` for a file's bytes.
        catalogue: Tells GPU names from other words, and a driver's own CUDA version from that of a compat library.
        machine: Given by option: it wins, field by field, over what is read.
        installed: Given by option (:func:`read_installed`): it wins package by package.
    """
    observations = tuple(observe(Log(text), catalogue))
    facts = scalars(observations)
    read = machine_of(facts, observations, catalogue)
    merged = read if machine is None else laid_over(machine, read)
    python = facts.get(Field.PYTHON)
    if machine is not None and machine.python is not None:
        python = Seen(machine.python, "--machine", machine.python)
    return Report(
        text=text,
        machine=merged,
        installed={**packages(observations), **(installed or {})},
        python=python,
        cuda=facts.get(Field.TORCH_CUDA),
        arch_list=_codes(observations),
        nvcc=facts.get(Field.NVCC),
        images=_distinct((fact.reference, o) for o in observations if isinstance(fact := o.fact, Image)),
        commands=_distinct((fact.text, o) for o in observations if isinstance(fact := o.fact, Command)),
        variables={name: seen(value, observation) for name, (value, observation) in _variables(observations).items()},
    )


def _distinct(values: Iterable[tuple[str, Observation]]) -> tuple[Seen[str], ...]:
    """Each value at its first place, in order."""
    first: dict[str, Observation] = {}
    for value, observation in sorted(values, key=lambda pair: pair[1].line.index):
        first.setdefault(value, observation)
    return tuple(seen(value, observation) for value, observation in first.items())


def _variables(observations: Iterable[Observation]) -> Mapping[str, tuple[str, Observation]]:
    """Each variable's last value."""
    ordered = sorted(observations, key=lambda observation: observation.line.index)
    return {fact.name: (fact.value, o) for o in ordered if isinstance(fact := o.fact, Variable)}


def _codes(observations: Iterable[Observation]) -> Seen[tuple[str, ...]] | None:
    """The last list of code that torch printed."""
    found = [(fact.codes, o) for o in observations if isinstance(fact := o.fact, Codes)]
    if not found:
        return None
    codes, observation = max(found, key=lambda pair: pair[1].line.index)
    return seen(codes, observation)
