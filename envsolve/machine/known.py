"""Machines with what the catalogue knows of them filled in: from this host, a target string, or machine files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from envsolve.system.arguments import items, path_of

if TYPE_CHECKING:
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.model import Machine


def detect() -> Machine:
    """Read this host: driver, GPUs, platform, toolkits, compilers, Pythons and installers.

    A machine without a GPU or a driver is fine.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.detect import detect as read_host
    from envsolve.machine.target import complete

    return complete(read_host(), Catalogue())


def describe_target(target: str, catalogue: Catalogue | None = None) -> Machine:
    """Return the machine that a target string describes, ``"RTX 4090, driver 550.54, python 3.12, linux-x86_64"``.

    Raises:
        UsageError: The string, or a GPU name in it, cannot be read.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.target import machine_from_target, parse_target

    return machine_from_target(parse_target(target), catalogue or Catalogue())


def load_machines(path: str | os.PathLike[str], catalogue: Catalogue | None = None) -> tuple[Machine, ...]:
    """Read a machine file written by ``envsolve detect -o FILE`` or another tool, or all of those in a directory.

    Raises:
        UsageError: A file does not hold a machine.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine import profile
    from envsolve.machine.target import complete

    facts = catalogue or Catalogue()
    return tuple(complete(machine, facts) for machine in profile.load_machines([path_of(path, "path")]))


def machines_given(machines: Sequence[Machine] | None) -> tuple[Machine, ...]:
    """Check that a program passed a list of machines.

    Raises:
        UsageError: It passed something else.
    """
    from envsolve.machine.model import Machine

    return items(machines, Machine, "machines")


def machines_or_host(machines: Sequence[Machine] | None) -> tuple[Machine, ...]:
    """Return the machines that a program passed, or this host if it passed none.

    Raises:
        UsageError: As :func:`machines_given`.
    """
    return machines_given(machines) or (detect(),)
