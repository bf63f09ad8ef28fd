"""What is asked for: the value that every kind of input is read into."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TypeVar

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from envsolve.errors import UsageError
from envsolve.index.address import without_logins

Item = TypeVar("Item")


class Need(msgspec.Struct, frozen=True):
    """One requirement and who asks for it.

    Attributes:
        requirement: Its marker is kept: only the resolver knows the target.
        origin: ``command line``, ``requirements.txt line 3``, ``pyproject.toml [project]``, ...
        hashes: ``--hash`` of the line, ``sha256:<digest>``: a file of the package must have one of them. Empty where
            none is given.
    """

    requirement: Requirement
    origin: str
    hashes: tuple[str, ...] = ()


class Asked(msgspec.Struct, frozen=True):
    """All that the inputs ask for.

    Attributes:
        needs: What must be in the plan, in the order of the inputs.
        constraints: What holds for a package only if something else brings it into the plan.
        index_urls: ``--index-url`` lines in order; the last one is the default index, as in pip.
        extra_index_urls: ``--extra-index-url`` lines in order.
        requires_python: The specifiers of all projects together (``>=3.10,<3.14``), or None.
        notes: Lines that were understood and set aside, in words.
        prereleases: Whether a file says ``--pre``.
    """

    needs: tuple[Need, ...] = ()
    constraints: tuple[Need, ...] = ()
    index_urls: tuple[str, ...] = ()
    extra_index_urls: tuple[str, ...] = ()
    requires_python: str | None = None
    notes: tuple[str, ...] = ()
    prereleases: bool = False


def combine(parts: Iterable[Asked]) -> Asked:
    """Everything that several inputs ask for, in their order."""
    parts = tuple(parts)
    pythons = [SpecifierSet(part.requires_python) for part in parts if part.requires_python]
    return Asked(
        needs=_joined(part.needs for part in parts),
        constraints=_joined(part.constraints for part in parts),
        index_urls=_joined(part.index_urls for part in parts),
        extra_index_urls=_joined(part.extra_index_urls for part in parts),
        requires_python=_specifier(pythons),
        notes=_joined(part.notes for part in parts),
        prereleases=any(part.prereleases for part in parts),
    )


def wrong(origin: str, what: str, hint: str | None = None) -> UsageError:
    """The error for a bad piece of input: where it stands, what is wrong, and what to write instead."""
    return UsageError(without_logins(f"{origin}: {what}"), hint=hint and without_logins(hint))


def _joined(parts: Iterable[tuple[Item, ...]]) -> tuple[Item, ...]:
    return tuple(chain.from_iterable(parts))


def _specifier(pythons: list[SpecifierSet]) -> str | None:
    if not pythons:
        return None
    together = SpecifierSet()
    for python in pythons:
        together &= python
    return str(together)
