"""What conda and mamba set out to do: packages that come, change and go."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Observation, Package, Trust
from envsolve.diagnose.report.readers._conda import of_build
from envsolve.diagnose.report.readers._words import is_related, normalised
from envsolve.diagnose.report.text import Line, Log
from envsolve.facts.catalogue import Catalogue

_NAME = r"[a-z0-9_][a-z0-9._-]{0,60}"
_PART = r"[^\s-]{1,60}"
_NEW = re.compile(
    rf"\s{{1,8}}({_NAME}):?\s{{1,60}}(?:[\w./-]{{1,60}}::)?\1-({_PART})-({_PART})\s{{0,4}}(?:\S{{0,40}})?"
)
_CHANGED = re.compile(
    rf"\s{{1,8}}({_NAME}):?\s{{1,60}}\S{{1,120}}(?:\s{{1,20}}\S{{1,40}})?\s{{1,40}}-->\s{{1,8}}(?:[\w./-]{{1,60}}::)?(?:{_NAME}-)??"
    rf"(\d{_PART})-({_PART})\s{{0,4}}(?:\S{{0,40}})?"
)
_MAMBA = re.compile(
    rf"\s{{1,6}}([+-])\s({_NAME})\s{{1,40}}(\d[^\s-]{{0,40}})\s{{1,40}}([\w.]{{1,60}})\s{{1,40}}\S{{2,60}}(?:\s{{1,20}}\S{{1,12}})?"
)


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """The packages of a plan, as if it was carried out: what a later line prints of them wins."""
    for line in log.containing("::", " --> ", "  + ", "  - "):
        yield from _planned(line)


def _planned(line: Line) -> Iterator[Observation]:
    if match := _MAMBA.fullmatch(line.text):
        sign, name, version, build = match.groups()
    elif match := _CHANGED.fullmatch(line.text) or _NEW.fullmatch(line.text):
        name, version, build = match.groups()
        sign = "+"
    else:
        return
    name = normalised(name)
    if is_related(name) or name == "python":
        yield Observation(Package(name, None if sign == "-" else version), line, Trust.IMPLIED)
        if sign == "+":
            yield from of_build(name, version, build, line)
