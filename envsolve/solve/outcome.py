"""The values of an outcome: packages pinned to files, warnings, and the reasons if nothing fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from envsolve.packages.urls import Tree
from envsolve.rules.verdict import Fix as Fix


class PlannedPackage(msgspec.Struct, frozen=True):
    """One package of the plan, pinned to one file.

    Attributes:
        version: Full version, with the local part where the file has one (``2.14.1+cu126``).
        variant: Accelerator variant of the code inside, None for packages without one.
        index: URL of the index that serves it; None for a direct reference.
        filename: Wheel or sdist file name.
        url: Where the file is; None if only the catalogue knows of it and no index was reached.
        hashes: Algorithm to hex digest; empty if unknown.
        kind: ``wheel`` or ``sdist``, or ``conda`` in a plan of conda packages.
        size: Bytes, if known.
        requires: Names of the packages of this plan that it depends on.
        why: What asked for it, in the words of the requirement.
        requires_python: Its Requires-Python.
        evidence: How the build is known to exist; None for packages that the catalogue does not describe.
        libc: Oldest libc that runs its binaries, ``glibc 2.32``, if that is known in addition to its file name.
        stands_in_for: Packages that others of the plan require and that it replaces.
        wheels_from: Of an sdist without code, the index that its build downloads the wheel from.
        tree: The source tree that it is built from, if no file was requested.
    """

    name: str
    version: str
    variant: str | None
    index: str | None
    filename: str | None
    url: str | None
    hashes: Mapping[str, str]
    kind: Literal["wheel", "sdist", "conda"]
    requires: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    size: int | None = None
    requires_python: str | None = None
    evidence: str | None = None
    libc: str | None = None
    stands_in_for: tuple[str, ...] = ()
    wheels_from: str | None = None
    tree: Tree | None = None


class PlanWarning(msgspec.Struct, frozen=True):
    """Something the user should know: stable code, message, and what to do about it."""

    code: str
    message: str
    remedy: str | None = None


class ConflictFact(msgspec.Struct, frozen=True):
    """One member of the set of facts that cannot all hold."""

    fact: str
    source: str | None = None


class Conflict(msgspec.Struct, frozen=True):
    """The reason why no plan exists."""

    facts: tuple[ConflictFact, ...]
    remedies: tuple[Fix, ...]
