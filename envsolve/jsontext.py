"""Values as JSON text: indented, and the same bytes for the same value."""

from __future__ import annotations

import json

import msgspec


def dump(value: object) -> str:
    """JSON with a newline at its end: values in the order of their fields, mappings sorted by key."""
    builtins = msgspec.to_builtins(value, order="deterministic", enc_hook=dict)  # the hook is for other mappings
    return json.dumps(builtins, indent=2, ensure_ascii=False) + "\n"
