"""Which Python a plan is for, where neither the request nor the machine says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.machine.model import Machine
from envsolve.resolve.family import Family
from envsolve.resolve.requirements import Asked

#: Newest first after the one that most projects are published and tested for.
_IN_ORDER = ("3.12", "3.13", "3.11", "3.10", "3.9", "3.8", "3.7", "3.6")


def choose_python(asked: Asked, machines: Sequence[Machine], family: Family) -> str:
    """The machine's own Python, else the first of a fixed order for which every family package asked for has a build.

    Args:
        family: The torch family on the machines, judged without regard to Python.
    """
    for machine in machines:
        if machine.python:
            return ".".join(machine.python.split(".")[:2])
    allowed = SpecifierSet(asked.requires_python or "")
    wanted = [(canonicalize_name(n.requirement.name), n.requirement.specifier) for n in asked.needs]
    for python in _IN_ORDER:
        if not allowed.contains(f"{python}.0") and not allowed.contains(f"{python}.99"):
            continue
        on_it = replace(family, python=python)
        if all(any(o.matches(spec) for o in on_it.options(name)) for name, spec in wanted if family.owns(name)):
            return python
    return _IN_ORDER[0]
