"""Requirement lines of METADATA, read once however often they are come upon."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

# A marker that is one comparison with an extra, or several things and that.
_OF_EXTRA = re.compile(r""";(?:.*\sand\s)?\s*\(?\s*extra\s*==\s*["']([^"']+)["']\s*\)?\s*$""")
_OR = re.compile(r"\bor\b")
_TEXT = re.compile(r""""[^"]*"|'[^']*'""")
_GROUP = re.compile(r"\([^()]*\)")


@lru_cache(maxsize=16384)
def parsed(line: str) -> Requirement | None:
    """A requirement line; None where it is none. Every extra of a package reads the same lines again."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


@lru_cache(maxsize=16384)
def only_for(line: str) -> str | None:
    """The extra without which a requirement line does not hold, normalised; None where that takes a closer look.

    Most lines of large packages are of extras that nobody asked for, and reading each costs more than all else.
    """
    found = _OF_EXTRA.search(line)
    if found is None or (_OR.search(line) and _is_choice(line[: found.start(1)])):
        return None
    return str(canonicalize_name(found[1]))


def _is_choice(before: str) -> bool:
    """Whether what stands before the extra may hold in its place: of an ``or`` in closed parentheses that is not so."""
    open_, removed = _TEXT.sub("", before), 1
    while removed:
        open_, removed = _GROUP.subn("", open_)
    return _OR.search(open_) is not None
