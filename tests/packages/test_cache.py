"""The cache on disk: bound to its keys, private, and not believed if others wrote it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envsolve.packages.cache import CachedPage, DiskCache, Store


def test_an_entry_in_the_place_of_another_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.write("pages", "one", b"1")
    cache.write("pages", "two", b"2")
    one, two = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    one.write_bytes(two.read_bytes())
    found = [cache.read("pages", key) for key in ("one", "two")]
    assert found.count(None) == 1


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners")
def test_entries_are_private_and_those_of_other_users_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DiskCache(tmp_path / "cache")
    cache.write("pages", "one", b"1")
    paths = list((tmp_path / "cache").rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o700, 0o600}
    monkeypatch.setattr("envsolve.packages.cache.os.getuid", lambda: 12345)
    owner = tmp_path.stat().st_uid
    assert (cache.read("pages", "one") is None) == (owner not in (0, 12345))


def test_a_page_kept_while_the_clock_was_ahead_is_asked_for_again(tmp_path: Path) -> None:
    year = 365 * 24 * 3600
    Store(DiskCache(tmp_path), clock=lambda: 2.0 * year).keep_page("one", CachedPage(2.0 * year + 600, None))
    kept = Store(DiskCache(tmp_path), clock=lambda: 1.0 * year).page("one")
    assert kept is not None
    assert kept.fresh_until == 0
