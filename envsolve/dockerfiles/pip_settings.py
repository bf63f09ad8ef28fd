"""What pip is told by a configuration that an image holds, as the variables that would say the same. Pure.

Source: pip documentation, "Configuration": files of the system and of the user, and one that ``PIP_CONFIG_FILE`` names.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping, Sequence

FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/root/.pip/pip.conf", "/root/.config/pip/pip.conf")
_SECTIONS = ("global", "install")


def set_by(words: Sequence[str]) -> Mapping[str, str]:
    """What ``pip config set global.index-url URL`` sets; nothing for another command."""
    said = [word for word in words if not word.startswith("-")]
    if "config" not in said or "set" not in said or not any(re.search(r"(?:^|/)pip[\d.]*$", word) for word in said):
        return {}
    key, *values = said[said.index("set") + 1 :] or [""]
    section, dot, name = key.partition(".")
    return {_variable(name): " ".join(values)} if dot and section in _SECTIONS else {}


def written_in(text: str) -> Mapping[str, str]:
    """What a ``pip.conf`` says; nothing where it is none."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return {
        _variable(name): value for part in _SECTIONS if parser.has_section(part) for name, value in parser[part].items()
    }


def _variable(name: str) -> str:
    return f"PIP_{name.upper().replace('-', '_')}"
