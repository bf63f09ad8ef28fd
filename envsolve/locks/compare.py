"""Differences of two locks or plans: packages, and their assumptions about the machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.errors import UsageError
from envsolve.planning.groups import Difference
from envsolve.system.files import own_table, parse_toml, read_regular

# What is compared besides packages: the words of a plan's JSON and of a lock's [tool.envsolve], and their kinds.
_ASSUMED = {"python": "python", "cuda": "variant", "driver_required": "driver", "libc": "libc"}
_HINT = "give a pylock.toml, uv.lock, poetry.lock or pdm.lock, or a plan in JSON"


class Comparison(msgspec.Struct, frozen=True):
    """Where two locks or plans differ; empty if they do not."""

    before: str
    after: str
    differences: tuple[Difference, ...]
    schema: Literal["envsolve.diff/1"] = "envsolve.diff/1"


Said = Mapping[str, Mapping[str, str]]
"""Contents of a lock or plan by kind and name: ``{"package": {"torch": "2.9.1+cu126"}}``."""


def compare_files(before: Path, after: Path) -> Comparison:
    """Differences of two files.

    Raises:
        UsageError: A file cannot be read, or is neither a lock nor a plan.
    """
    said = [read_said(_text(path), path) for path in (before, after)]
    return Comparison(str(before), str(after), tuple(compare(*said)))


def read_said(text: str, path: Path) -> Said:
    """Read the text of a lock or a plan.

    Raises:
        UsageError: It is neither.
    """
    try:
        if path.suffix == ".json":
            table = json.loads(text)
            own = {**table, "driver_required": (table.get("driver") or {}).get("required")}
            return _said(own.get("packages", ()), [own], path)
        table = parse_toml(text, path, _HINT)
        own = own_table(table, path)
        parts = [*own.get("classes", {}).values()] or [own]
        return _said(table.get("packages", table.get("package", ())), parts, path)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}", hint=_HINT) from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise UsageError(f"{path} is neither a lock nor a plan", hint=_HINT) from None


def compare(before: Said, after: Said) -> Iterator[Difference]:
    """Where two differ: what they assume first, then packages by name."""
    for kind in before:
        for name in sorted({*before[kind], *after[kind]}):
            old, new = before[kind].get(name), after[kind].get(name)
            if old != new:
                yield Difference(kind, name, old, new)


def _said(packages: Any, parts: Sequence[Mapping[str, Any]], path: Path) -> Said:
    versions: dict[str, list[str]] = {}
    for one in packages:
        if one.get("version") and one.get("source", {}) not in ({"virtual": "."}, {"editable": "."}):
            versions.setdefault(canonicalize_name(one["name"]), []).append(one["version"])
    if not versions:
        raise UsageError(f"{path} contains no package", hint=_HINT)
    found: dict[str, dict[str, str]] = {}
    for key, kind in _ASSUMED.items():
        values = dict.fromkeys(str(part[key]) for part in parts if part.get(key))
        found[kind] = {kind: ", ".join(values)} if values else {}
    found["variable"] = {name: value for part in parts for name, value in (part.get("environment") or {}).items()}
    found["package"] = {name: ", ".join(sorted(set(some), key=_key)) for name, some in versions.items()}
    return found


def _key(text: str) -> tuple[bool, Version | str]:
    try:
        return False, Version(text)
    except InvalidVersion:
        return True, text


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path} cannot be read: {reason}", hint=_HINT) from None


def table(differences: Sequence[Difference], heads: tuple[str, str]) -> str:
    """Differences as a table for people, the packages after the rest.

    Args:
        differences: At least one.
        heads: The headings of the two values.
    """
    rows = [("", *heads)]
    for one in differences:
        name = one.name if one.kind in ("package", one.name) else f"{one.kind} {one.name}"
        rows.append((name, one.now or "-", one.then or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows)
