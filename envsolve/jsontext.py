"""Dataclasses as JSON text: indented, in the order of their fields, the same bytes for the same value."""

from __future__ import annotations

import json

import msgspec


def dump(value: object) -> str:
    """JSON of a dataclass, with a newline at its end."""
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False) + "\n"
