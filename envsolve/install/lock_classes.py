"""Select the part of a lock that is for this machine, if the lock supports several classes of machines.

Classes that differ in system or Python are separated by the lock's own markers. Those that differ in GPUs or drivers
are dependency groups of the lock, because markers cannot describe a GPU: the assumptions of each group decide here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from envsolve.errors import ImpossibleError, UsageError
from envsolve.install import record
from envsolve.install.files import Lock, read_lock
from envsolve.machine.model import Machine
from envsolve.planning.lock import Assumptions, Classes, mismatches, unknowns
from envsolve.system.files import is_file
from envsolve.values import DriverVersion


def for_machine(lock: Lock, machine: Machine | None, python: str | None, groups: Sequence[str]) -> Lock:
    """The lock reduced to the part for this machine.

    Args:
        lock: Of one class, of several, or of another tool's making.
        machine: This machine; None if nothing is known about it.
        python: ``3.12``, if requested.
        groups: Requested dependency groups; of a lock of several classes, the one class.

    Raises:
        ImpossibleError: The lock has no part for this machine.
        UsageError: It has no such group, or several parts could be the right one.
    """
    if not lock.classes:
        declared = {*(lock.pylock.dependency_groups or ()), *(lock.pylock.default_groups or ())}
        known = {canonicalize_name(name) for name in declared}
        for group in groups:
            if canonicalize_name(group) not in known:
                raise UsageError(f"the lock has no dependency group {group}", hint=_choices(sorted(known)))
        return replace(lock, groups=tuple(groups)) if groups else lock
    name = _named(groups, lock.classes) if groups else _fitting(lock.classes, machine, python)
    declared = {*(lock.pylock.dependency_groups or ())}
    note = f"installing the packages of the lock for the class of machines {name}"
    return replace(
        lock,
        assumptions=lock.classes[name],
        classes={},
        groups=(name,) if name in declared else (),
        notes=(*lock.notes, note),
    )


def _named(groups: Sequence[str], classes: Classes) -> str:
    if len(groups) > 1:
        raise UsageError("an environment is for one class of machines", hint="give only one --group")
    if groups[0] not in classes:
        raise UsageError(f"the lock has no class {groups[0]}", hint=_choices(list(classes)))
    return groups[0]


def _fitting(classes: Classes, machine: Machine | None, python: str | None) -> str:
    """The class of a machine; of several the one with the highest driver requirement."""
    # The Python is settled by the interpreter that is found, and only orders what else fits.
    loose = {name: replace(one, python=None) for name, one in classes.items() if python in (None, one.python)}
    if not loose:
        have = ", ".join(sorted({one.python for one in classes.values() if one.python}))
        raise UsageError(f"the lock has no class of machines with Python {python}", hint=f"it has Python {have}")
    failed = {name: mismatches(one, machine) for name, one in loose.items()} if machine else {}
    fitting = {name: one for name, one in loose.items() if not failed.get(name)}
    if not fitting:
        why = "".join(f"\n  {name}: {'; '.join(sentences)}" for name, sentences in failed.items())
        raise ImpossibleError(
            f"the lock has no packages for this machine; it was made for these classes of machines:{why}",
            hint="plan again for this machine as well (--machine FILE; make the file with: envsolve detect -o FILE)",
        )
    fitting = _of_present_pythons(fitting, classes, machine) or fitting
    if machine is not None and machine.gpus == ():
        fitting = {name: one for name, one in fitting.items() if not one.gpus} or fitting
    return _only_one(fitting, machine)


def _only_one(fitting: Classes, machine: Machine | None) -> str:
    """The class that fits; of several that certainly fit, the one with the highest driver requirement.

    Raises:
        UsageError: Too little is known about the machine to choose.
    """
    if len(fitting) == 1:
        return next(iter(fitting))
    if machine is None or not all(_certain(one, machine) for one in fitting.values()):
        without = "has no GPU" if machine is not None and machine.gpus == () else "is not known well enough"
        raise UsageError(
            f"this machine {without}, so envsolve cannot choose a class of machines for the environment",
            hint=_choices(list(fitting)),
        )
    return max(fitting, key=lambda name: DriverVersion.parse(fitting[name].driver_required or "0"))


def _of_present_pythons(fitting: Classes, classes: Classes, machine: Machine | None) -> dict[str, Assumptions]:
    """Those of fitting classes whose Python the machine is known to have."""
    if machine is None:
        return {}
    return {
        name: one for name, one in fitting.items() if not mismatches(Assumptions(python=classes[name].python), machine)
    }


def _certain(one: Assumptions, machine: Machine) -> bool:
    return not unknowns(one, machine) and not (one.gpus and not machine.gpus)


def _choices(names: Sequence[str]) -> str:
    return f"choose one: {' or '.join(f'--group {name}' for name in names)}" if names else "leave --group out"


# What stands already: the versions in a lock, and those in an environment, as something to stay with.


OURS = "envsolve"


def locked(path: Path) -> tuple[tuple[str, str], ...]:
    """Name and version of every package in a pylock.toml.

    Raises:
        UsageError: The file is not a lock.
    """
    return tuple((package.name, str(package.version)) for package in read_lock(path).pylock.packages if package.version)


def is_own_lock(path: Path) -> bool:
    """Whether a file exists that envsolve wrote as a lock, and is complete."""
    try:
        return is_file(path) and read_lock(path).pylock.created_by == OURS
    except (OSError, UsageError):
        return False


def installed(prefix: Path) -> tuple[tuple[str, str], ...]:
    """Name and version of every package in an environment.

    Raises:
        UsageError: The lock has no such group.
    """
    found = tuple(_installed(prefix))
    if not found:
        raise UsageError(
            f"there is no environment with packages at {prefix}",
            hint="give the root directory of an environment: --prefix DIR",
        )
    return found


def _installed(prefix: Path) -> Iterator[tuple[str, str]]:
    for distribution in record.installed(prefix):
        metadata = distribution.metadata
        if metadata["Name"] and metadata["Version"]:
            yield metadata["Name"], metadata["Version"]
