"""Which Python a plan is for, where neither the request nor the machine says."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.compat.platform import python_tag
from envsolve.compat.settle import python_of
from envsolve.machine.model import Machine
from envsolve.resolve.family import Family
from envsolve.resolve.requirements import Asked
from envsolve.resolve.unpublished import without_flavour

#: Newest first after the one that most projects are published and tested for.
_IN_ORDER = ("3.12", "3.13", "3.11", "3.10", "3.9", "3.8", "3.7", "3.6")


def choose_python(asked: Asked, machines: Sequence[Machine], family: Family) -> str:
    """The machine's own Python, else the first of a fixed order for which every family package asked for has a build.

    It must run there; where none does, one that is at least published for that Python will do, since a refusal should
    not be about a Python that nobody asked for.

    Args:
        family: The torch family on the machines, judged without regard to Python.
    """
    if own := python_of(machines):
        return own
    allowed = SpecifierSet(asked.requires_python or "")
    pythons = [p for p in _IN_ORDER if allowed.contains(f"{p}.0") or allowed.contains(f"{p}.99")]
    wanted = [(canonicalize_name(n.requirement.name), n.requirement.specifier) for n in asked.needs]
    of_family = [(name, specifier) for name, specifier in wanted if family.owns(name)]
    running = (p for p in pythons if all(_runs(replace(family, python=p), *demand) for demand in of_family))
    published = (p for p in pythons if all(_published(family, p, *demand) for demand in of_family))
    return next(running, None) or next(published, None) or _IN_ORDER[0]


def _runs(family: Family, name: str, specifier: SpecifierSet) -> bool:
    return any(option.matches(specifier) for option in family.options(name))


def _published(family: Family, python: str, name: str, specifier: SpecifierSet) -> bool:
    """Whether what is asked for has a build for a Python; what no build meets is asked for in any flavour."""
    options = family.judged(name)
    met = [o for o in options if o.matches(specifier)] or [o for o in options if o.matches(without_flavour(specifier))]
    return any(python_tag(build.pythons, python) for option in met for build in option.builds)
