"""One line of a package list, in the forms that installers print."""

from __future__ import annotations

import re

from envsolve.diagnose.report.observation import Package
from envsolve.diagnose.report.readers._words import normalised

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}"
_ANY_VERSION = r"v?\d[A-Za-z0-9.+!_]{0,60}"
_FROZEN = re.compile(
    rf"[\s+*\u2022-]{{0,8}}(?:-\s)?({_NAME})(?:\[[\w,.-]{{1,60}}\])?={{2,3}}({_ANY_VERSION})(?:\s{{0,8}}(?:;|--hash|#|\\).{{0,500}})?\s{{0,4}}"
)
_EXPORTED = re.compile(rf"({_NAME})=({_ANY_VERSION})=([A-Za-z0-9_.]{{1,60}})")
_YAML = re.compile(rf"\s{{0,8}}-\s(?:[\w/.-]{{1,60}}::)?({_NAME})={{1,2}}({_ANY_VERSION})(?:=[A-Za-z0-9_.]{{1,60}})?")
_TABLE = re.compile(rf"[\s*-]{{0,4}}({_NAME})(?:\s\(!\))?\s{{1,80}}({_ANY_VERSION})(?:\s{{1,80}}(\S.{{0,300}}))?")
_APART = re.compile(rf"[\s*-]{{0,4}}({_NAME})\s{{2,80}}({_ANY_VERSION})(?:\s{{1,80}}\S{{1,80}}){{0,3}}")
_EXPLICIT = re.compile(
    r"(?:https?|file)://\S{1,300}/(?:linux-64|linux-aarch64|win-64|osx-64|osx-arm64|noarch)/"
    r"([A-Za-z0-9_.-]{1,100})-([^-/\s]{1,60})-[^-/\s]{1,60}\.(?:conda|tar\.bz2)\b"
)
_EDITABLE = re.compile(rf"# Editable (?:Git |Hg |)install [^(]{{0,60}}\(({_NAME})==({_ANY_VERSION})\)")
_AT = re.compile(rf"({_NAME}) @ \S{{1,400}}/(?:[A-Za-z0-9_.]{{1,80}})-({_ANY_VERSION})-\S{{1,120}}\.whl\b")
_HEADING = re.compile(r"[#\s]{0,4}(?:package|name)\s{1,80}version\b", re.IGNORECASE)
_SPOKEN = frozenset(
    {"version", "python", "line", "gpu", "cuda", "error", "step", "release", "warning", "ubuntu", "windows"}
)


def is_heading(text: str) -> bool:
    """Whether a line heads a table of packages."""
    return _HEADING.match(text) is not None


def frozen_line(text: str) -> Package | None:
    """``torch==2.8.0+cu128``, with what pip freeze and uv add to it."""
    for pattern in (_FROZEN, _EDITABLE, _AT):
        if match := pattern.fullmatch(text.rstrip()) if pattern is _FROZEN else pattern.match(text):
            return _package(match[1], match[2])
    return None


def table_line(text: str) -> Package | None:
    """Name and version in columns, with or without build and channel behind."""
    match = _TABLE.fullmatch(text.rstrip())
    if match is None or match[1].lower() in _SPOKEN or match[1].isdigit():
        return None
    return _package(match[1], match[2])


def lone_table_line(text: str) -> Package | None:
    """The same with no table around it: columns stand apart, and no sentence follows."""
    return table_line(text) if _APART.fullmatch(text.rstrip()) else None


def any_line(text: str) -> Package | None:
    """A line of a file that is known to be a package list, in any form."""
    if match := _EXPLICIT.match(text.strip()) or _EXPORTED.fullmatch(text.strip()) or _YAML.fullmatch(text.rstrip()):
        return _package(match[1], match[2])
    return frozen_line(text) or table_line(text)


def _package(name: str, version: str) -> Package:
    # Lists have the names "torch" (pip) and "pytorch" (conda); "PyTorch" is how collect_env's relatives call torch.
    return Package("torch" if name == "PyTorch" else normalised(name), version.removeprefix("v"))
