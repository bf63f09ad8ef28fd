"""Values as JSON text: indented, and the same bytes for the same value."""

from __future__ import annotations

import msgspec


def dump(value: object) -> str:
    """JSON with a newline at its end: values in the order of their fields, mappings sorted by key."""
    try:
        written = msgspec.json.encode(value, order="deterministic", enc_hook=dict)  # the hook is for other mappings
    except UnicodeEncodeError:
        return _with_escapes(value)
    return msgspec.json.format(written, indent=2).decode() + "\n"


def _with_escapes(value: object) -> str:
    """Likewise, of a value in which a path is that is no UTF-8: JSON has its bytes as escapes alone."""
    import json

    builtins = msgspec.to_builtins(value, order="deterministic", enc_hook=dict)
    return json.dumps(builtins, indent=2) + "\n"
