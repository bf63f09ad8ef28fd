"""What an installer did: pip's and uv's transactions, and pip's complaints that name what is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Observation, Package, Trust
from envsolve.diagnose.report.readers._words import VERSION, normalised
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}"
_DONE = re.compile(r"\b(Successfully (?:un)?installed)\s(.{1,2000})")
_DASHED = re.compile(rf"({_NAME}?)-({VERSION}|\d{{1,8}})(?=[\s,]|$)")
_SATISFIED = re.compile(
    rf"Requirement already (?:satisfied|up-to-date): ({_NAME})\S{{0,120}} in \S.{{0,300}} \(({VERSION}|\d{{1,8}})\)"
)
_SATISFIED_BY = re.compile(rf"Requirement already (?:satisfied|up-to-date): ({_NAME})==({VERSION}) in ")
_FOUND = re.compile(rf"Found existing installation: ({_NAME}) ({VERSION})")
_UV = re.compile(rf"\s{{1,6}}([+~-])\s({_NAME})==({VERSION})(?:\s\(.{{0,300}})?\s{{0,4}}")
_YOU_HAVE = re.compile(rf"\bbut you(?:'ll)? have ({_NAME}) ({VERSION})")
_INSTALLED_REQUIRER = re.compile(rf"({_NAME}) ({VERSION}) (?:requires|has requirement) {_NAME}")


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Packages that came, stayed and went, in the order of the lines."""
    for line in log.containing(
        "successfully ", "requirement already ", "found existing installation", "but you", " + ", " - ", " ~ "
    ):
        for package in _packages(line.text):
            yield Observation(package, line, Trust.PRINTED)


def _packages(text: str) -> Iterator[Package]:
    if match := _DONE.search(text):
        removed = "uninstalled" in match[1]
        for name, version in _DASHED.findall(match[2]):
            if name:
                yield Package(normalised(name), None if removed else version)
    elif match := _SATISFIED.search(text) or _SATISFIED_BY.search(text) or _FOUND.search(text):
        yield Package(normalised(match[1]), match[2])
    elif match := _UV.fullmatch(text):
        yield Package(normalised(match[2]), None if match[1] == "-" else match[3])
    elif match := _YOU_HAVE.search(text):
        yield Package(normalised(match[1]), match[2])
        if requirer := _INSTALLED_REQUIRER.search(text):
            yield Package(normalised(requirer[1]), requirer[2])
