"""A PEP 751 lock file; ``[tool.envsolve]`` holds what it assumes about the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
from packaging.markers import Marker
from packaging.pylock import (
    Package,
    PackageArchive,
    PackageDirectory,
    PackageSdist,
    PackageVcs,
    PackageWheel,
    Pylock,
    is_valid_pylock_path,
)
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.errors import UsageError
from envsolve.formats import group_names
from envsolve.formats._packages import is_direct, locked, public, strong_hashes
from envsolve.machine.model import Machine
from envsolve.packages.urls import UNREAD, Tree
from envsolve.planning.lock import assumptions_of, classes_to_table
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage

if TYPE_CHECKING:
    from envsolve.planning.groups import Plans

NAME = "pylock"
FILENAMES = ("pylock.toml", "pylock.*.toml")
FAMILY = "wheels"
HOLDS_SEVERAL = True
NEEDS_HASHES = True


# platform_system of each operating system, and platform_machine of its architectures. PDM reads an environment of a
# lock only if it names these two, joined by "and", and neither sys_platform nor "or" (pdm 2.29, EnvSpec.from_marker).
_PLATFORMS = {"linux": "Linux", "windows": "Windows"}
_ARCHITECTURES = {("windows", "x86_64"): "AMD64", ("windows", "aarch64"): "ARM64"}


def render(plan: Plan) -> str:
    """The lock's text.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some package has no URL or hash, or its repository was not read.
        UsageError: A URL without a hash is in the plan.
    """
    packages = sorted(locked(plan), key=lambda package: canonicalize_name(package.name))
    lock = Pylock(
        lock_version=Version("1.0"),
        environments=[Marker(text) for text in platform_markers(plan.machines)] or None,
        requires_python=SpecifierSet(f"=={plan.python}.*") if plan.python else None,
        created_by="envsolve",
        packages=[locked_package(package) for package in packages],
        tool={"envsolve": assumptions_of(plan).to_table()},
    )
    lock.validate()
    return tomli_w.dumps(lock.to_dict())


def render_plans(plans: Plans, *, sources: bool = False) -> str:
    """Write one lock for all plans; for a single plan it is the ordinary lock.

    Raises:
        EnvsolveError: A plan is impossible or cannot be locked.
    """
    if len(plans.plans) > 1:
        return render_classes(dict(zip(group_names(plans), map(public, plans.plans), strict=True)))
    return render(public((*plans.plans, *plans.unserved)[0]))


def check_path(path: Path) -> None:
    """Make sure that installers recognize a file of this name as a lock.

    Raises:
        UsageError: It is neither ``pylock.toml`` nor ``pylock.NAME.toml`` (PEP 751).
    """
    if not is_valid_pylock_path(path):
        raise UsageError(
            f"a lock cannot have the name {path.name}, because installers recognize locks by their names",
            hint="use the name pylock.toml, or pylock.NAME.toml without a dot in NAME",
        )


def locked_package(package: PlannedPackage) -> Package:
    """A lock's entry for a package: its one file, or its source tree."""
    wheel = sdist = archive = None
    if package.tree is not None:
        pass
    elif is_direct(package):
        archive = PackageArchive(url=package.url, size=package.size, hashes=strong_hashes(package))
    elif package.kind == "wheel":
        wheel = PackageWheel(name=package.filename, url=package.url, size=package.size, hashes=strong_hashes(package))
    else:
        sdist = PackageSdist(name=package.filename, url=package.url, size=package.size, hashes=strong_hashes(package))
    return Package(
        name=canonicalize_name(package.name),
        version=Version(package.version) if package.version != str(UNREAD) else None,
        requires_python=_specifier(package.requires_python),
        dependencies=[{"name": canonicalize_name(name)} for name in sorted(package.requires)] or None,
        index=package.index or None,
        vcs=_commit(package.tree) if package.tree else None,
        directory=_folder(package.tree) if package.tree else None,
        archive=archive,
        wheels=[wheel] if wheel else None,
        sdist=sdist,
    )


def _commit(tree: Tree) -> PackageVcs | None:
    if tree.commit is None:
        return None
    return PackageVcs(
        type="git",
        url=tree.repository,
        requested_revision=tree.revision,
        commit_id=tree.commit,
        subdirectory=tree.subdirectory,
    )


def _folder(tree: Tree) -> PackageDirectory | None:
    return PackageDirectory(path=tree.folder, subdirectory=tree.subdirectory) if tree.folder else None


def platform_markers(machines: Sequence[Machine]) -> tuple[str, ...]:
    """The platforms of machines, as markers, sorted; empty if one of them is not known."""
    found: set[str] = set()
    for machine in machines:
        platform = machine.platform
        if platform is None or platform.arch is None or platform.os not in _PLATFORMS:
            return ()
        arch = _ARCHITECTURES.get((platform.os, platform.arch), platform.arch)
        found.add(f"platform_system == '{_PLATFORMS[platform.os]}' and platform_machine == '{arch}'")
    return tuple(sorted(found))


def _specifier(text: str | None) -> SpecifierSet | None:
    """Requires-Python, unless it is malformed, as in some old releases: installers ignore it then."""
    try:
        return SpecifierSet(text) if text else None
    except InvalidSpecifier:
        return None


# One lock for several classes of machines, each with a plan of its own.
#
# Classes of different systems or Pythons are separated by markers, which every installer evaluates. Classes that differ
# only in GPUs or drivers are dependency groups, since no marker knows about a GPU. All of these are default groups: an
# installer that is not told which one to use then meets two versions of a package and refuses. Without a default group
# it would leave torch out and report success.


@dataclass(frozen=True, slots=True)
class _Class:
    """A class of machines.

    Attributes:
        packages: What its environment holds, by name.
        cell: The marker of its system and Python, as far as the classes differ in them.
        group: Its dependency group; None if no other class has the same cell.
    """

    packages: Mapping[str, PlannedPackage]
    cell: str
    group: str | None

    @property
    def marker(self) -> str:
        """The marker that holds only for this class."""
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
        """Its identity among the other entries of its name."""
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
    environments = sorted(_environments(plans, python))
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


def _environments(plans: Mapping[str, Plan], python: Mapping[str, str]) -> set[str]:
    """The marker of every system and Python of the classes; an empty one if a system is not known."""
    every = ((name, platform_markers(plan.machines) or ("",)) for name, plan in plans.items())
    return {_all_of(system, python[name]) for name, systems in every for system in systems}


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
    """Wheels of one release in one entry, if each is for another system or Python, which their tags show."""
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
    """The marker that holds only for the given classes; empty if it is for all of them."""
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
    """The dependencies of an entry in each of its classes, with enough detail to distinguish entries of one name."""
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
