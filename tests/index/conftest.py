"""Every test here runs with its own home and cache, and none of the caller's index settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envsolve.index.client import IndexClient
from envsolve.index.settings import IndexSettings
from tests.indexcontent import Index
from tests.indexserver import IndexServer

_PREFIXES = ("PIP_", "UV_", "XDG_", "ENVSOLVE_")
_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NETRC", "APPDATA")
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

MakeClient = Callable[..., IndexClient]


@pytest.fixture(autouse=True)
def isolated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ENVSOLVE_CACHE_DIR", str(tmp_path / "cache"))
    if request.node.get_closest_marker("network"):
        return  # these reach the index as the caller does
    for name in list(os.environ):
        if name.startswith(_PREFIXES) or name.upper() in (*_NAMES, *_AUTHORITIES):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ENVSOLVE_CACHE_DIR", str(tmp_path / "cache"))


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
