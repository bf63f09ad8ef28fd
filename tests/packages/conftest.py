from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envsolve.packages.client import IndexClient
from envsolve.packages.settings import IndexSettings
from tests.indexcontent import Index
from tests.indexserver import IndexServer

MakeClient = Callable[..., IndexClient]


@pytest.fixture
def server() -> Iterator[IndexServer]:
    with IndexServer() as running:
        yield running


@pytest.fixture
def make_client() -> Iterator[MakeClient]:
    """Clients of indexes (the first is the default one), closed at the end."""
    made: list[IndexClient] = []

    def make(
        *indexes: Index | str, offline: bool = False, cache_dir: Path | None = None, **settings: object
    ) -> IndexClient:
        addresses = [i if isinstance(i, str) else i.url for i in indexes]
        configured = IndexSettings(addresses[0], tuple(addresses[1:]), **settings)  # type: ignore[arg-type]
        client = IndexClient(configured, offline=offline, cache_dir=cache_dir)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()
