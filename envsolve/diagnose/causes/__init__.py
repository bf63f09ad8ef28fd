"""The causes, one directory each: its data in ``cause.toml``, and the code that decides in ``__init__.py``.

A directory's module holds ``from_report(scene)``, which weighs a report, and ``from_environment(environment, scene)``,
which looks at an installed environment without any error; either may be absent. Words that name the cause by themselves
are only data (``[stated.<role>]``). Adding a cause is adding a directory.
Modules with an underscore hold what several causes share.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

from envsolve.diagnose.cause_files import Stops, causes, code_of
from envsolve.diagnose.causes._shared import stated
from envsolve.diagnose.model import Finding, RuledOut
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment

FromReport = Callable[[Scene], Iterator[Finding | RuledOut]]
FromEnvironment = Callable[[Environment, Scene], Iterator[Finding]]


@cache
def report_checks() -> tuple[FromReport, ...]:
    """The findings of each cause on a report, in the order of their codes."""
    modules = (importlib.import_module(f"{__name__}.{name}") for name in _directories())
    checks = (getattr(module, "from_report", None) for module in modules)
    # The words of data come first: among equals, the specific tool that they name is the subject.
    return (stated, *(check for check in checks if check is not None))


@cache
def environment_checks(stops: Stops) -> tuple[FromEnvironment, ...]:
    """The findings on an environment, from the causes that stop one thing."""
    names = [name for name in _directories() if causes().files[code_of(name)].stops == stops]
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    checks = (getattr(module, "from_environment", None) for module in modules)
    return tuple(check for check in checks if check is not None)


def _directories() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
