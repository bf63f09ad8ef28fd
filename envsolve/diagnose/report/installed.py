"""Package lists that are given as such: what pip, uv, conda and pixi print or export, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from envsolve.diagnose.model import Seen
from envsolve.diagnose.report.observation import Package
from envsolve.diagnose.report.readers._listing import any_line, is_heading
from envsolve.diagnose.report.readers._words import normalised
from envsolve.diagnose.report.text import Log
from envsolve.errors import UsageError

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
