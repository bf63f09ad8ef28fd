"""A PEP 751 lock file; what it assumes of the machine stands under ``[tool.envsolve]``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
from envsolve.formats._packages import is_direct, locked, strong_hashes
from envsolve.machine.model import Machine
from envsolve.packages.source_trees import Tree
from envsolve.planning.lock import assumptions_of
from envsolve.planning.plan import Plan
from envsolve.solve.files import UNREAD
from envsolve.solve.outcome import PlannedPackage

# platform_machine of each architecture, by operating system (sys_platform).
_PLATFORMS = {"linux": "linux", "windows": "win32"}
_ARCHITECTURES = {("windows", "x86_64"): "AMD64", ("windows", "aarch64"): "ARM64"}


def render(plan: Plan) -> str:
    """The lock's text.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some package has no address or hash, or its repository was not read.
        UsageError: An address without a hash is in the plan.
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


def check_path(path: Path) -> None:
    """See that installers will take a file of this name for a lock.

    Raises:
        UsageError: It is neither ``pylock.toml`` nor ``pylock.NAME.toml`` (PEP 751).
    """
    if not is_valid_pylock_path(path):
        raise UsageError(
            f"a lock cannot be named {path.name}: installers know it by its name",
            hint="name it pylock.toml, or pylock.NAME.toml with no dot in NAME",
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
    """The platforms of machines, as markers, sorted; empty where one of them is not known."""
    found: set[str] = set()
    for machine in machines:
        platform = machine.platform
        if platform is None or platform.arch is None or platform.os not in _PLATFORMS:
            return ()
        arch = _ARCHITECTURES.get((platform.os, platform.arch), platform.arch)
        found.add(f"sys_platform == '{_PLATFORMS[platform.os]}' and platform_machine == '{arch}'")
    return tuple(sorted(found))


def _specifier(text: str | None) -> SpecifierSet | None:
    """Requires-Python, unless it is one of the malformed ones of old releases, which installers disregard."""
    try:
        return SpecifierSet(text) if text else None
    except InvalidSpecifier:
        return None
