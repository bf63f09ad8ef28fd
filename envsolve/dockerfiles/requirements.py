"""Lines of requirement files, and which requirements hold on a machine. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from packaging.requirements import Requirement

from envsolve.machine.model import Platform

# Options that stand behind a requirement.
_BESIDE = re.compile(r"\s--(?:hash|config-settings?|global-option)[= ]\S+")


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbers and lines that say something, continued ones joined, hashes and comments left out.

    Source: pip documentation, "Requirements File Format".
    """
    joined, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        joined, start = joined + line, start or number
        if line.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        said = _BESIDE.sub("", re.sub(r"(^|\s)#.*$", "", joined)).strip()
        if said:
            yield start, said
        joined, start = "", 0


def option_words(line: str) -> list[str]:
    """The words of a line that is an option, as on the command line."""
    try:
        return shlex.split(line)
    except ValueError:
        return []


def holds(requirement: Requirement, platform: Platform | None, python: str | None) -> bool | None:
    """Whether its marker does on a machine; None where that is not known."""
    if requirement.marker is None:
        return True
    text = str(requirement.marker)
    if "extra" in text or ("python" in text and python is None):
        return None
    environment = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    if platform is not None and platform.arch:
        environment["platform_machine"] = platform.arch
    elif "platform_machine" in text:
        return None
    if python is not None:
        environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    return requirement.marker.evaluate(environment)
