"""Plan formats, one module each: a module ``environment_yml.py`` here is the format ``environment-yml``.

A format module has ``render(plan: Plan) -> str``. Modules whose name starts with an underscore are no formats.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.formats._packages import public
from envsolve.formats._words import in_a_line, warning_lines
from envsolve.machine.model import Machine, Platform
from envsolve.planning.plan import Plan


def formats() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    names = (module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return tuple(sorted(name.replace("_", "-") for name in names))


def render(plan: Plan, format: str) -> str:
    """Write a plan down.

    Args:
        plan: The plan.
        format: One of :func:`formats`.

    Raises:
        UsageError: There is no such format.
        ImpossibleError: The plan is impossible, and the format has no way to say so.
        IndexUnavailableError: The format needs hashes that the plan lacks.
    """
    if format not in formats():
        raise UsageError(f"there is no plan format {format!r}", hint=f"formats: {', '.join(formats())}")
    module = importlib.import_module(f"{__name__}.{format.replace('-', '_')}")
    text: str = module.render(public(plan))
    return text


def remarks(plan: Plan) -> Iterator[str]:
    """What to say beside a plan that is written for a program: what was chosen, and every warning, a line each."""
    plan = public(plan)
    yield in_a_line(plan)
    yield from warning_lines(plan)


def in_containers(machines: Sequence[Machine]) -> tuple[Machine, ...]:
    """Return machines as a container on them sees them: their drivers and GPUs, but its own libc, compilers, toolkits.

    The libc is that of the oldest official image of Python, unless the machine has a newer one.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.rules.platform import libc_of, libc_text

    catalogue = Catalogue()
    images = {image.distribution for image in catalogue.images if image.repository == "python"}
    bases = [libc_of(Platform(libc=catalogue.distributions[name].libc)) for name in images]
    oldest = min(filter(None, bases))
    seen = []
    for machine in machines:
        platform = machine.platform or Platform()
        libc = libc_of(platform)
        own = libc if libc and libc[0] == oldest[0] and libc > oldest else oldest
        if platform.os != "windows" and not platform.jetson:
            machine = replace(
                machine, platform=replace(platform, libc=libc_text(own)), host_compilers=None, toolkits=None
            )
        seen.append(machine)
    return tuple(seen)
