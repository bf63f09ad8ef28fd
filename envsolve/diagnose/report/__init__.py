"""Reading a machine and an environment out of what people send: a traceback, a log, a whole issue.

Readers (one module a kind of text, in ``readers``) take observations from lines; ``merge`` weighs them against each
other; ``machine`` makes the machine. What is given beside the text wins over what is read out of it. A number that
might be something else is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envsolve.diagnose.model import ReportFacts, Seen
from envsolve.diagnose.report.machine import laid_over, machine_of
from envsolve.diagnose.report.observation import (
    Codes,
    Command,
    Field,
    Image,
    Observation,
    Package,
    Variable,
    packages,
    scalars,
    seen,
)
from envsolve.diagnose.report.readers import observe
from envsolve.diagnose.report.readers._listing import any_line, is_heading
from envsolve.diagnose.report.readers._words import normalised
from envsolve.diagnose.report.text import Log, decode
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine

# Package lists that are given as such: what pip, uv, conda and pixi print or export, or JSON.


_HINT = 'give what "pip freeze", "pip list", "uv pip list" or "conda list" prints, or JSON: {"torch": "2.8.0+cu128"}'


def read_installed(text: str, where: str = "--installed") -> Mapping[str, Seen[str]]:
    """The packages of a list, by normalised name.

    Reads ``pip freeze``, ``pip list`` (columns or JSON), ``pip inspect``, ``uv pip list``, ``conda list`` (also
    ``--json``, ``--export``, ``--explicit``), an exported ``environment.yml``, ``pixi list``, and JSON such as
    ``{"torch": "2.8.0+cu128"}``.
    An entry without a version is left out.

    Args:
        text: The list.
        where: What the facts are said to come from.

    Raises:
        UsageError: The text holds no package.
    """
    if text.lstrip()[:1] in ("{", "["):
        return {name: Seen(version, where, f"{name} {version}") for name, version in _from_json(text)}
    found: dict[str, Seen[str]] = {}
    for line in Log(text).lines:
        if not is_heading(line.text) and (package := any_line(line.text)) and package.version:
            found[package.name] = Seen(package.version, f"{where}, line {line.number}", line.quote)
    if not found and text.strip():
        raise UsageError("no package with a version in the list of what is installed", hint=_HINT)
    return found


def _from_json(text: str) -> Iterator[tuple[str, str]]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the list of what is installed is no JSON: {error}", hint=_HINT) from error
    if isinstance(value, dict) and isinstance(value.get("installed"), list):  # pip inspect
        value = [entry.get("metadata") for entry in value["installed"] if isinstance(entry, dict)]
    if isinstance(value, dict):
        entries = list(value.items())
    else:
        entries = [(entry.get("name"), entry.get("version")) for entry in value if isinstance(entry, dict)]
    for name, version in entries:
        if isinstance(name, str) and isinstance(version, str) and version:
            package = Package(normalised(name), version)
            yield package.name, version
    if entries and not any(isinstance(version, str) for _, version in entries):
        raise UsageError("no package with a version in the list of what is installed", hint=_HINT)


__all__ = ["decode", "read_installed", "read_report"]


def read_report(
    text: str,
    catalogue: Catalogue,
    *,
    machine: Machine | None = None,
    installed: Mapping[str, Seen[str]] | None = None,
) -> ReportFacts:
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
    return ReportFacts(
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
