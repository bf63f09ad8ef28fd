"""Facts about files, found by their hashes."""

from __future__ import annotations

import pytest
from msgspec import structs

from envsolve.facts.builds import KnownMetadata
from envsolve.facts.catalogue import Catalogue, LateMetadata
from envsolve.facts.evidence import Evidence, Placeholder
from envsolve.packages.cache import KnownFiles
from envsolve.packages.client import IndexClient
from envsolve.packages.model import CoreMetadata, PlaceholderError
from envsolve.packages.settings import IndexSettings
from tests.indexserver import IndexServer


def record(package: str, version: str, *digests: str, requires: tuple[str, ...] = ()) -> KnownMetadata:
    return KnownMetadata(package, version, digests, Evidence.MEASURED, "here", requires, ">=3.9", ("x",))


def test_a_file_of_a_known_hash_is_not_read(server: IndexServer) -> None:
    index = server.index(metadata=False)
    known = index.wheel("demo", "1.0", requires=["what-it-really-says"])
    index.wheel("demo", "2.0", requires=["b"])
    read: list[str] = []

    def records() -> tuple[KnownMetadata, ...]:
        read.append("once")
        return (record("demo", "1.0", "ab" * 32, known.sha256, requires=("a",)),)

    for _ in range(2):  # the second time from the cache
        with IndexClient(IndexSettings(index.url), known=KnownFiles(records)) as client:
            one, two = client.project("demo")
            client.prefetch_metadata([one])
            assert client.metadata(one).requires_dist == ("a",)
            assert client.metadata(one).requires_python == ">=3.9"
            assert client.metadata(one).provides_extra == ("x",)
            assert client.metadata(two).requires_dist == ("b",)
    assert server.asked("/simple/-files/demo-1.0") == 0
    assert len(read) == 1


def test_an_index_that_states_no_hash_is_asked(server: IndexServer) -> None:
    index = server.index(metadata=False, hashes=False)
    entry = index.wheel("demo", "1.0", requires=["b"])
    known = KnownFiles(lambda: (record("demo", "1.0", entry.sha256, requires=("a",)),))
    with IndexClient(IndexSettings(index.url), known=known) as client:
        assert client.metadata(client.project("demo")[0]).requires_dist == ("b",)


def test_the_newest_known_release_tells_what_is_likely() -> None:
    known = KnownFiles(lambda: (record("demo", "1.0", requires=("a",)), record("demo", "2.0", requires=("b",))))
    assert known.requires("demo") == ("b",)
    assert known.requires("other") == ()


@pytest.mark.parametrize(
    ("summary", "hint"),
    [
        ("A fake package, not the correct one.", "--extra-index-url https://a.example"),
        ("Zero version", None),
        ("Deep learning; not A fake package", ""),
        ("", ""),
    ],
)
def test_a_file_that_only_holds_a_name_is_refused(summary: str, hint: str | None) -> None:
    told = (
        Placeholder("A fake package", Evidence.MEASURED, "here", "https://a.example"),
        Placeholder("Zero version", Evidence.MEASURED, "here"),
    )
    known, metadata = KnownFiles(tuple, lambda: told), CoreMetadata("demo", "0.0.1", summary=summary)
    if hint == "":
        known.refuse_placeholder("demo-0.0.1.tar.gz", metadata)
        return
    with pytest.raises(PlaceholderError, match="only a placeholder") as caught:
        known.refuse_placeholder("demo-0.0.1.tar.gz", metadata)
    assert caught.value.hint is None if hint is None else hint in (caught.value.hint or "")


def test_records_that_are_read_late_say_the_same() -> None:
    catalogue = Catalogue()
    late, whole = catalogue.late_metadata(), catalogue.known_metadata
    assert [(one.package, one.sha256) for one in late] == [(one.package, one.sha256) for one in whole]
    for one, other in [*zip(late, whole, strict=True)][::40]:
        assert isinstance(one, LateMetadata)
        assert structs.replace(one.read(), source=other.source) == other
