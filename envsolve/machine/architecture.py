"""Names of processor architectures."""

from __future__ import annotations

_SPELT = {"amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}


def architecture(name: str) -> str:
    """The architecture's name as wheels spell it on Linux: ``AMD64`` is ``x86_64``, ``arm64`` is ``aarch64``."""
    return _SPELT.get(name.lower(), name.lower())
