"""The checks of an environment, found by their folders."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType

from envsolve.diagnose.environment import compiling, running
from envsolve.diagnose.environment.model import Environment
from envsolve.diagnose.finding import Finding
from envsolve.diagnose.scene import Scene

Check = Callable[[Environment, Scene], Iterator[Finding]]


@cache
def running_checks() -> tuple[Check, ...]:
    """What keeps torch, or what stands on it, from running; by name of the module."""
    return _of(running)


@cache
def compiling_checks() -> tuple[Check, ...]:
    """What keeps kernels from being compiled."""
    return _of(compiling)


def _of(folder: ModuleType) -> tuple[Check, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_"))
    return tuple(importlib.import_module(f"{folder.__name__}.{name}").check for name in names)
