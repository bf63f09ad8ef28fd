"""How an impossible request is told: the facts that cannot all hold, and what would make it fit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConflictFact:
    """One member of the set of facts that cannot all hold."""

    fact: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would make it fit, and what that unlocks; cheapest first in a plan."""

    action: str
    unlocks: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why there is no plan."""

    facts: tuple[ConflictFact, ...]
    remedies: tuple[Remedy, ...]
