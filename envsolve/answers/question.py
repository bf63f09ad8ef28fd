"""A question as one key, made of every value that its answer depends on; what cannot be put into one has no key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from envsolve.files import read_regular

# A requirement by name, versions and markers: no address, path, variable or option in it, so that nothing but the text
# itself decides what it means.
_REQUIREMENT = re.compile(
    r"(?!pyproject\.toml|.*\.whl|.*\s-)[A-Za-z0-9][A-Za-z0-9 \t._\[\],;<>=!~()'\"*+-]*(?:\s#.*)?", re.ASCII
)
_BESIDE = re.compile(r"\s*(?:#.*|--(?:extra-)?index-url[ =]https?://[\w./:@%~+-]+\s*)?", re.ASCII)
_CODING = re.compile(r"coding[:=]")


def key_of(question: Mapping[str, object]) -> str | None:
    """The key of a question; None where a part of it is no plain value."""
    try:
        return hashlib.sha256(msgspec.msgpack.encode(question, order="deterministic")).hexdigest()
    except (TypeError, ValueError, msgspec.MsgspecError):
        return None


def plain(requirements: Iterable[str]) -> bool:
    """Whether requirements mean the same wherever and whenever they are read."""
    return all(_REQUIREMENT.fullmatch(text) for text in requirements)


def texts(paths: Iterable[Path]) -> list[tuple[str, bytes]] | None:
    """Requirement files as they are named, and what is in them; None where one means more than its own text says."""
    found = []
    for path in paths:
        try:
            data = read_regular(path)
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        lines = text.splitlines()
        if path.suffix not in (".txt", ".in") or _CODING.search(text):
            return None
        if not all(_BESIDE.fullmatch(line) or _REQUIREMENT.fullmatch(line.strip()) for line in lines):
            return None
        found.append((str(path), data))
    return found
