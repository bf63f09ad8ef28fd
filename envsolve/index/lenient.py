"""Requirement and specifier texts of old packages, repaired where the meaning is plain, dropped where it is not."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

# ">=3.6.*" was accepted before PEP 440 was enforced and was read as ">=3.6".
_STAR_AFTER_ORDER = re.compile(r"((?:>=|<=|~=|>|<)\s*[0-9][0-9A-Za-z.!]*?)\.\*")


@lru_cache(maxsize=4096)
def specifier_text(text: str | None) -> str | None:
    """A ``Requires-Python`` text that packaging accepts; None for one that says nothing usable (pip ignores those)."""
    if text is None or not text.strip():
        return None
    for candidate in (text.strip(), _repair(text.strip())):
        try:
            SpecifierSet(candidate)
        except InvalidSpecifier:
            continue
        return candidate
    return None


def requirement_text(line: str) -> str | None:
    """A ``Requires-Dist`` line that packaging accepts, or None where it cannot be read."""
    line = " ".join(line.split())
    for candidate in (line, _repair(line)):
        try:
            Requirement(candidate)
        except InvalidRequirement:
            continue
        return candidate
    return None


def _repair(text: str) -> str:
    requirement, semicolon, marker = text.partition(";")
    return _STAR_AFTER_ORDER.sub(r"\1", requirement) + semicolon + marker
