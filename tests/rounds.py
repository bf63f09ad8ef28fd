"""The rounds that the solver takes, counted while a test plans."""

from __future__ import annotations

from typing import Any

import pytest

from envsolve.solve import resolver
from envsolve.solve.resolver import search


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that every search of a plan adds its rounds to."""
    rounds: list[int] = []

    def noted(*arguments: Any) -> Any:
        found = search(*arguments)
        rounds.append(found.rounds)
        return found

    monkeypatch.setattr(resolver, "search", noted)
    return rounds
