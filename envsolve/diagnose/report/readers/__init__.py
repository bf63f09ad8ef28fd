"""Readers, one module a kind of text; found by this folder.

A reader module has ``read(log: Log, catalogue: Catalogue) -> Iterator[Observation]``, which is pure and takes time
linear in the log. Modules whose name starts with an underscore are no readers.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Observation
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue


def readers() -> tuple[str, ...]:
    """The names of all readers, sorted."""
    names = (module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return tuple(sorted(names))


def observe(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """What every reader finds, reader by reader."""
    for name in readers():
        yield from importlib.import_module(f"{__name__}.{name}").read(log, catalogue)
