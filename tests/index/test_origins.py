"""What a client says its answers were read from: enough to know whether another run would read the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.errors import EnvsolveError
from envsolve.index.cache import DiskCache
from tests.index.conftest import MakeClient
from tests.indexserver import IndexServer


def kinds(origins: object) -> list[str]:
    assert isinstance(origins, tuple)
    return sorted(origin.entry.path.split("/")[0].split("-")[0] for origin in origins)


def test_what_is_fetched_and_what_was_kept_stand_in_the_same_entries(
    server: IndexServer, make_client: MakeClient
) -> None:
    index = server.index()
    index.wheel("demo", "1.0")
    index.wheel("guess", "1.0")
    found = []
    for _ in range(2):
        client = make_client(index)
        client.prefetch(["demo", "guess"])  # what nobody reads in the end is no part of it
        (file,) = client.project("demo")
        client.metadata(file)
        found.append(client.origins())
    assert kinds(found[0]) == ["metadata", "pages"]
    assert found[0] == found[1]
    assert min(origin.fresh_until for origin in found[0] or ()) > 0


def test_an_entry_is_told_from_what_comes_in_its_place(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.write("pages", "demo", b"one")
    entry = cache.entry("pages", "demo")
    assert entry is not None and cache.has(entry)
    DiskCache(tmp_path).write("pages", "demo", b"two")  # by another process
    assert not cache.has(entry)
    cache.read("pages", "demo")
    assert cache.entry("pages", "demo") != entry
    (tmp_path / entry.path).unlink()
    assert cache.read("pages", "demo") is None and cache.entry("pages", "demo") is None
    assert not cache.has(entry)


@pytest.mark.parametrize("what", ["opened", "failed", "absent from the cache", "read elsewhere"])
def test_what_the_cache_does_not_hold_has_no_origins(
    what: str, server: IndexServer, make_client: MakeClient, tmp_path: Path
) -> None:
    index = server.index(cache_control="no-store" if what == "absent from the cache" else None)
    index.wheel("demo", "1.0")
    client = make_client(index)
    (file,) = client.project("demo")
    if what == "opened":
        client.open(file).close()
    elif what == "failed":
        server.fault("/simple/other/", status=401)
        with pytest.raises(EnvsolveError):
            client.project("other")
    elif what == "read elsewhere":
        client.read_elsewhere()
    assert client.origins() is None


def test_a_page_that_may_not_be_kept_is_not_the_one_of_before(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index(cache_control="max-age=0")
    index.wheel("demo", "1.0")
    make_client(index).project("demo")
    index.cache_control = "no-store"
    index.wheel("demo", "2.0")
    client = make_client(index)
    assert len(client.project("demo")) == 2
    assert client.origins() is None
