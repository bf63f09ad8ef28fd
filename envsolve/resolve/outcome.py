"""How an impossible request is told: the facts that cannot all hold, and what would make it fit."""

from __future__ import annotations

import msgspec


class ConflictFact(msgspec.Struct, frozen=True):
    """One member of the set of facts that cannot all hold."""

    fact: str
    source: str | None = None


class Remedy(msgspec.Struct, frozen=True):
    """A change that would make it fit, and what that unlocks; cheapest first in a plan."""

    action: str
    unlocks: str


class Conflict(msgspec.Struct, frozen=True):
    """Why there is no plan."""

    facts: tuple[ConflictFact, ...]
    remedies: tuple[Remedy, ...]
