"""Lists of installed packages: pip freeze, pip list, conda list, uv and pixi, and what collect_env repeats of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Observation, Package, Trust
from envsolve.diagnose.report.readers._conda import of_build
from envsolve.diagnose.report.readers._listing import frozen_line, is_heading, lone_table_line, table_line
from envsolve.diagnose.report.readers._words import is_related, normalised
from envsolve.diagnose.report.text import Line, Log
from envsolve.facts.catalogue import Catalogue

_COLLECTED = re.compile(r"\s{0,8}\[(?:pip3?|conda|uv)\]\s{1,4}(.{3,200})")
_LISTING_COMMAND = re.compile(
    r"(?:pip3?|uv pip|conda|mamba|micromamba|pixi|poetry(?: run pip)?)\s(?:\S{1,40}\s){0,3}?(?:freeze|list|show)\b"
)
_REQUIREMENTS = re.compile(
    r"requirements?[\w-]{0,20}\.(?:txt|in)|environment\.ya?ml|pyproject|constraints?|dependencies|docker ?file",
    re.IGNORECASE,
)
_PARENTHESISED = re.compile(r"([A-Za-z0-9._-]{1,60}) \((\d[\w.+]{0,40})\)")
# "pip show" and "poetry show": the name, and the version on the next line.
_SHOWN = re.compile(r"\s{0,4}[Nn]ame\s{0,12}: ([A-Za-z0-9._-]{2,60})\s{0,4}$")
_SHOWN_VERSION = re.compile(r"\s{0,4}[Vv]ersion\s{0,12}: (\d[\w.+!-]{0,60})\s{0,4}")
_FAR = 60


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Every package that a list gives; without a list around it, a line counts for packages that matter to GPUs."""
    for line in log.containing("[pip3]", "[pip]", "[conda]", "[uv]"):
        if (match := _COLLECTED.match(line.text)) and (package := _collected(match[1])):
            yield Observation(package, line, Trust.PRINTED)
            yield from _of_conda_build(line.text.partition("]")[2], line)
    for line in log.containing("=="):
        if (package := frozen_line(line.text)) and is_related(package.name) and not _asked_for(line, log):
            yield Observation(package, line, Trust.IMPLIED)
    for line in log.containing("name: ", "name  "):
        if (match := _SHOWN.match(line.text)) and (after := log.after(line, 1)):
            version = _SHOWN_VERSION.fullmatch(after[0].text)
            if version:
                yield Observation(Package(normalised(match[1]), version[1]), after[0], Trust.PRINTED)
    yield from _tables(log)


def _tables(log: Log) -> Iterator[Observation]:
    """Columns of name and version, below a heading, below the command that prints them, or of known names."""
    until = -1
    for line in log.lines:
        text = line.text
        if "ersion" in text and is_heading(text):
            until = line.index + 2000
        elif text[:1] in "$>!#(" and _LISTING_COMMAND.search(text):
            until = line.index + _FAR
        elif line.index <= until:
            if package := frozen_line(text) or (table_line(text) if text[:1] != "|" else None):
                yield Observation(package, line, Trust.PRINTED)
                yield from _of_conda_build(text, line)
            elif not text.startswith(("#", "-", " ")) and "  " not in text:
                until = line.index  # prose or the next command: the table is over
        elif "  " in text and (package := lone_table_line(text)) and is_related(package.name):
            yield Observation(package, line, Trust.IMPLIED)
            yield from _of_conda_build(text, line)


def _collected(text: str) -> Package | None:
    """What stands behind ``[pip3]`` or ``[conda]``; older versions wrote ``torch (1.0.0)``."""
    if match := _PARENTHESISED.fullmatch(text.strip()):
        return Package(normalised(match[1]), match[2])
    return frozen_line(text) or table_line(text)


def _of_conda_build(text: str, line: Line) -> Iterator[Observation]:
    words = text.split()
    if len(words) > 2:
        yield from of_build(words[0], words[1], words[2], line)


def _asked_for(line: Line, log: Log) -> bool:
    """Whether the block that a ``name==version`` stands in is a list of requirements."""
    for above in log.before(line, 40):
        if _REQUIREMENTS.search(above.text):
            return True
        if _LISTING_COMMAND.search(above.text):
            return False
        if "==" not in above.text and above.index != line.index - 1:
            return False
    return False
