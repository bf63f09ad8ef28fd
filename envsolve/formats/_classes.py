"""One PEP 751 lock for several classes of machines, each with a plan of its own.

Classes of different systems or Pythons are told apart by markers, which every installer evaluates for itself. Classes
that only cards or drivers tell apart are dependency groups, for no marker knows of a GPU. All of these are default
groups: an installer that is not told which of them to take then meets two versions of a package and refuses; without
a default it would leave torch out, and call that a success.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tomli_w
from packaging.markers import Marker
from packaging.pylock import Package, Pylock
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.formats._packages import is_direct, locked
from envsolve.formats.pylock import locked_package, platform_markers
from envsolve.planning.lock import assumptions_of, classes_to_table
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage


@dataclass(frozen=True, slots=True)
class _Class:
    """A class of machines.

    Attributes:
        packages: What its environment holds, by name.
        cell: The marker of its system and Python, as far as the classes differ in them.
        group: Its dependency group; None where no other class has the same cell.
    """

    packages: Mapping[str, PlannedPackage]
    cell: str
    group: str | None

    @property
    def marker(self) -> str:
        """Holds where the class is to be installed, and nowhere else."""
        return _all_of(self.cell, f"'{self.group}' in dependency_groups" if self.group else "")


_Classes = Mapping[str, _Class]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of the lock: the files of a release, and the names of the classes that they are for."""

    name: str
    files: tuple[PlannedPackage, ...]
    classes: frozenset[str]

    @property
    def release(self) -> tuple[str, str | None]:
        """What tells it from the other entries of its name."""
        return self.files[0].version, self.files[0].index


def render_classes(plans: Mapping[str, Plan]) -> str:
    """The lock's text.

    Args:
        plans: The plan of each class, by the class's name.

    Raises:
        EnvsolveError: A plan cannot be locked; see :func:`envsolve.formats.pylock.render`.
    """
    pythons = sorted({plan.python for plan in plans.values() if plan.python})
    python = {name: f"python_version == '{plan.python}'" if len(pythons) > 1 else "" for name, plan in plans.items()}
    systems = {name: " or ".join(platform_markers(plan.machines)) for name, plan in plans.items()}
    tell = len(set(systems.values())) > 1 and all(systems.values())
    cells = {name: _all_of(systems[name] if tell else "", python[name]) for name in plans}
    sharing = Counter(cells.values())
    classes = {
        name: _Class({canonicalize_name(p.name): p for p in locked(plan)}, cell, name if sharing[cell] > 1 else None)
        for (name, plan), cell in zip(plans.items(), cells.values(), strict=True)
    }
    environments = sorted({_all_of(systems[name], python[name]) for name in plans})
    groups = [one.group for one in classes.values() if one.group] or None
    lock = Pylock(
        lock_version=Version("1.0"),
        environments=[Marker(text) for text in environments] if all(environments) else None,
        requires_python=SpecifierSet(f"=={pythons[0]}.*") if len(pythons) == 1 else None,
        dependency_groups=groups,
        default_groups=groups,
        created_by="envsolve",
        packages=list(_packages(classes)),
        tool={"envsolve": classes_to_table({name: assumptions_of(plan) for name, plan in plans.items()})},
    )
    lock.validate()
    return tomli_w.dumps(lock.to_dict())


def _packages(classes: _Classes) -> Iterator[Package]:
    """The lock's entries by name, of one name the newest first."""
    entries = _merged(_entries(classes), classes)
    entries.sort(key=lambda entry: Version(entry.files[0].version), reverse=True)
    entries.sort(key=lambda entry: entry.name)
    by_name: dict[str, list[_Entry]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    for entry in entries:
        first, *others = (locked_package(file) for file in entry.files)
        wheels = [wheel for package in (first, *others) for wheel in package.wheels or ()]
        marker = _marker(entry.classes, classes)
        yield replace(
            first,
            marker=Marker(marker) if marker else None,
            dependencies=list(_dependencies(entry, classes, by_name)) or None,
            wheels=sorted(wheels, key=lambda wheel: wheel.filename) or None,
        )


def _entries(classes: _Classes) -> list[_Entry]:
    """Each file with the classes that it is for."""
    found: dict[tuple[str, str | None, str | None], _Entry] = {}
    for name, one in classes.items():
        for package, file in one.packages.items():
            key = (package, file.url, file.index)
            before = found.get(key)
            found[key] = _Entry(package, (file,), before.classes | {name} if before else frozenset({name}))
    return list(found.values())


def _merged(entries: Sequence[_Entry], classes: _Classes) -> list[_Entry]:
    """Wheels of one release in one entry, where each is for another system or Python: their tags tell them apart."""
    releases: dict[tuple[object, ...], list[_Entry]] = {}
    for entry in entries:
        file = entry.files[0]
        apart = file.url if is_direct(file) or file.kind != "wheel" else None
        releases.setdefault((entry.name, *entry.release, file.requires_python, apart), []).append(entry)
    merged: list[_Entry] = []
    for release in releases.values():
        cells = [{classes[name].cell for name in entry.classes} for entry in release]
        if len(set.union(*cells)) < sum(map(len, cells)):
            merged += release
            continue
        files = tuple(file for entry in release for file in entry.files)
        merged.append(_Entry(release[0].name, files, frozenset.union(*(entry.classes for entry in release))))
    return merged


def _marker(members: frozenset[str], classes: _Classes) -> str:
    """Holds for some of the classes and for no other; empty where it is for all of them."""
    if len(members) == len(classes):
        return ""
    alternatives: dict[str, None] = {}
    for name in classes:
        if name in members:
            cell = classes[name].cell
            whole = bool(cell) and all(other in members for other, one in classes.items() if one.cell == cell)
            alternatives[cell if whole else classes[name].marker] = None
    return " or ".join(alternatives)


def _dependencies(
    entry: _Entry, classes: _Classes, by_name: Mapping[str, Sequence[_Entry]]
) -> Iterator[Mapping[str, Any]]:
    """What an entry depends on in each of its classes, with as much as tells the entries of one name apart."""
    wanted = {
        (canonicalize_name(required), name)
        for name in entry.classes
        for required in classes[name].packages[entry.name].requires
    }
    for required in sorted({required for required, _ in wanted}):
        candidates = by_name[required]
        for other in candidates:
            if not any((required, name) in wanted for name in other.classes):
                continue
            version, index = other.release
            told: dict[str, Any] = {"name": required}
            if len(candidates) > 1:
                told["version"] = version
            if index and sum(one.files[0].version == version for one in candidates) > 1:
                told["index"] = index
            yield told


def _all_of(*conditions: str) -> str:
    """The conjunction of markers, those that are empty left out."""
    return " and ".join(f"({one})" if " or " in one else one for one in conditions if one)
