"""The build context: which of its files a command of a Dockerfile sees under a path. Reads files, writes none."""

from __future__ import annotations

import configparser
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from envsolve.dockerfile.model import Command, Copied
from envsolve.machine.model import Platform
from envsolve.system.files import is_folder, read_regular, real_path


@dataclass(frozen=True, slots=True)
class Context:
    """The folder that COPY takes from; None where it is not known."""

    root: Path | None

    def text(self, path: str, command: Command) -> str | None:
        """The text of a file as a command sees it; None where it comes from elsewhere or is not there."""
        wanted = posixpath.normpath(posixpath.join(command.folder, path))
        for copied in reversed(command.copied):
            if copied.document is not None:
                if _absolute(copied) == wanted:
                    return copied.document
                continue
            for source in self._sources(copied, wanted):
                text = self._read(source)
                if text is not None:
                    return text
        return None

    def _sources(self, copied: Copied, wanted: str) -> Iterator[str]:
        """Where in the context it would come from, were it copied so."""
        target = _absolute(copied)
        inside = posixpath.relpath(wanted, target)
        for source in copied.sources:
            whole = source.lstrip("/") or "."
            if self.root is not None and is_folder(self.root / whole):
                if not inside.startswith(".."):
                    yield posixpath.join(whole, inside)
            elif wanted == target or inside == posixpath.basename(whole):
                yield whole

    def _read(self, source: str) -> str | None:
        if self.root is None:
            return None
        path = real_path(self.root / source)
        if not path.is_relative_to(real_path(self.root)):
            return None
        try:
            return read_regular(path).decode("utf-8", "replace")
        except OSError:
            return None


def _absolute(copied: Copied) -> str:
    return posixpath.normpath(posixpath.join(copied.folder, copied.target))


# Lines of requirement files, and which requirements hold on a machine. Pure.


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


# What pip is told by a configuration that an image holds, as the variables that would say the same. Pure.
#
# Source: pip documentation, "Configuration": files of the system and of the user, and one that ``PIP_CONFIG_FILE``
# names.


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
