"""Prefetching: which index pages are requested before the solver needs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import pytest

from envsolve.facts.builds import KnownMetadata
from envsolve.facts.evidence import Evidence
from envsolve.packages.cache import KnownFiles
from envsolve.packages.client import IndexClient
from envsolve.rules.platform import Environment
from envsolve.solve.candidate_selector import Likely
from tests.solve.worlds import MACHINE

NEEDS = {
    "app": ("server[fast]", "torch", "old; python_version < '3.9'", 'dev-tool; extra == "dev"'),
    "server": ("loop", 'speed; extra == "fast"', "win; sys_platform == 'win32'"),
    "loop": ("app", "deep"),
    "torch": ("of-torch",),
}


@dataclass
class Client:
    """Has nothing in its cache but what it is told."""

    kept: frozenset[str] = frozenset()
    known: KnownFiles = field(
        default_factory=lambda: KnownFiles(
            lambda: tuple(KnownMetadata(n, "1", (), Evidence.MEASURED, "", lines) for n, lines in NEEDS.items())
        )
    )
    asked: list[str] = field(default_factory=list)

    def prefetch(self, names: Iterable[str]) -> bool:
        new = [name for name in names if name not in self.kept and name not in self.asked]
        self.asked += new
        return bool(new)


def likely(client: Client) -> Likely:
    environment = Environment.of(MACHINE, "3.12")
    return Likely(cast(IndexClient, client), environment, lambda name: name == "torch")


@pytest.mark.parametrize(
    ("needed", "asked"),
    [
        ([("app", "")], {"app", "server", "speed", "loop", "deep"}),
        ([("app", ""), ("app", "dev")], {"app", "dev-tool", "server", "speed", "loop", "deep"}),
        ([("server", "")], {"server", "loop", "app", "speed", "deep"}),
        ([("torch", "")], set()),
        ([("unheard-of", "")], {"unheard-of"}),
    ],
)
def test_what_is_needed_comes_with_what_that_needs_here(needed: list[tuple[str, str]], asked: set[str]) -> None:
    client = Client()
    likely(client).ask(needed)
    assert set(client.asked) == asked


def test_what_the_cache_answers_leads_to_no_guess() -> None:
    client = Client(kept=frozenset({"app"}))
    likely(client).ask([("app", "")])
    assert client.asked == []
