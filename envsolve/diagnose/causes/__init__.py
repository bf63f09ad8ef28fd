"""The weighings, one module for a cause or a group of causes that only facts tell apart.

A module here holds ``weigh(scene) -> Iterator[Finding | RuledOut]``; adding a cause is adding a file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

from envsolve.diagnose.model import Finding, RuledOut
from envsolve.diagnose.scene import Scene

Weigh = Callable[[Scene], Iterator[Finding | RuledOut]]


@cache
def weighings() -> tuple[Weigh, ...]:
    """Every weighing of this folder, by name of its module."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return tuple(importlib.import_module(f"{__name__}.{name}").weigh for name in names)
