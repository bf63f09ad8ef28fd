"""What ``envsolve guard --write`` leaves in an environment's pip configuration, told from what its user wrote there."""

from __future__ import annotations

import sys
from pathlib import Path

BEGIN, END = "# written by envsolve guard --write", "# end of what envsolve guard wrote"
CONFIG = "pip.ini" if sys.platform == "win32" else "pip.conf"
"""pip's configuration file in the root folder of an environment."""


def without_block(text: str) -> str:
    """A configuration without what guard wrote; as it is where it wrote nothing, or its marks are not whole."""
    lines = text.splitlines()
    if BEGIN not in lines or END not in lines:
        return text
    begin, end = lines.index(BEGIN), lines.index(END)
    return "".join(f"{line}\n" for line in (*lines[:begin], *lines[end + 1 :]))


def is_guarded(environment: Path) -> bool:
    """Whether guard left constraints in an environment's pip configuration."""
    return BEGIN in _configuration(environment).splitlines()


def is_all_ours(environment: Path) -> bool:
    """Whether guard wrote all of an environment's pip configuration, so that nothing of its user's is in it."""
    text = _configuration(environment)
    return bool(text) and not without_block(text).strip()


def _configuration(environment: Path) -> str:
    try:
        return (environment / CONFIG).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
