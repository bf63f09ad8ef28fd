"""Pages of links and local directories, as pip's ``--find-links`` has them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from envsolve.errors import IndexUnavailableError
from envsolve.packages.links import hashed, place_of
from tests.distributions import make_sdist, make_wheel
from tests.indexserver import IndexServer
from tests.packages.conftest import MakeClient


def page(server: IndexServer, path: str, *links: str, status: int = 200) -> str:
    body = "<!DOCTYPE html><title>Links for all</title>" + "".join(f'<a href="{link}">x</a><br>' for link in links)
    server.fault(path, status=status, body=body.encode(), headers={"Content-Type": "text/html"})
    return server.url + path


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A directory with wheels of two projects, an sdist with a dash in its name, and other things."""
    found = tmp_path / "my wheels"
    found.mkdir()
    for name, version in (("demo", "1.0"), ("demo", "3.0rc1"), ("other", "2.0")):
        (found / f"{name}-{version}-py3-none-any.whl").write_bytes(make_wheel(name, version))
    (found / "two-words-1.5.tar.gz").write_bytes(make_sdist("two-words", "1.5"))
    (found / "notes.txt").write_text("no archive")
    return found


def test_a_page_of_links_is_read_once_and_divided_by_project(server: IndexServer, make_client: MakeClient) -> None:
    """Kept under its URL alone, it gave the versions of the first project for all others."""
    url = page(server, "/links.html", "a/demo-1.0-py3-none-any.whl#sha256=" + "a" * 64, "/b/other-2.0.zip")
    for _ in range(2):
        client = make_client(server.index(), url)
        for name, version in (("demo", "1.0"), ("other", "2.0")):
            assert client.listing(name).versions == (version,)
        assert client.listing("demo").named("other-2.0.zip") is None
    (file,) = make_client(server.index(), url).project("demo")
    assert (file.url, file.index) == (f"{server.url}/a/demo-1.0-py3-none-any.whl", "")
    assert file.hashes == {"sha256": "a" * 64}


def test_links_add_to_the_indexes_and_go_first(server: IndexServer, make_client: MakeClient, wheels: Path) -> None:
    index = server.index()
    index.wheel("demo", "1.0")
    index.wheel("demo", "2.0")
    client = make_client(index, links=(wheels.as_uri(),))
    listing = client.listing("demo")
    assert listing.versions == ("1.0", "2.0", "3.0rc1")
    assert listing.early == {2}
    local = (wheels / "demo-1.0-py3-none-any.whl").as_uri()
    assert listing.files(0)[0].url == local
    assert len(listing.files(0)) == 2
    assert [file.index for file in listing] == ["", index.url, index.url, ""]
    named = listing.named("demo-3.0rc1-py3-none-any.whl")
    assert named is not None
    assert client.metadata(named).version == "3.0rc1"
    assert client.listing("two-words").versions == ("1.5",)
    assert not client.listing("nowhere")
    assert client.listing("two").versions == ()


def test_without_an_index_only_links_count(server: IndexServer, make_client: MakeClient, wheels: Path) -> None:
    index = server.index()
    index.wheel("demo", "2.0")
    client = make_client(index, links=(wheels.as_uri(),), no_index=True)
    client.prefetch(["demo"])
    assert client.listing("demo").versions == ("1.0", "3.0rc1")
    assert not client.listing("demo", index.url)
    assert server.requests == []


def test_pages_in_a_directory_and_archives_count(server: IndexServer, make_client: MakeClient, wheels: Path) -> None:
    (wheels / "more.html").write_text('<a href="sub/demo-0.5-py3-none-any.whl">x</a><title>Links</title>')
    archive = f"{server.url}/files/other-9.0-py3-none-any.whl"
    client = make_client(server.index(), links=(wheels.as_uri(), archive), no_index=True)
    assert client.listing("demo").versions == ("0.5", "1.0", "3.0rc1")
    assert client.listing("other").versions == ("2.0", "9.0")


def test_a_page_that_is_gone_is_empty(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("demo", "1.0")
    client = make_client(index, links=(page(server, "/gone.html", status=404),))
    assert (client.listing("demo").versions, client.links.unread) == (("1.0",), {})


def test_a_page_that_fails_is_an_error_only_for_what_no_other_place_has(
    server: IndexServer, make_client: MakeClient
) -> None:
    """pip goes on without such a page, and uv stops."""
    index = server.index()
    index.wheel("demo", "1.0")
    down = page(server, "/down.html", status=500)
    client = make_client(index, links=(down,), retries=0)
    assert client.listing("demo").versions == ("1.0",)
    assert [*client.links.unread] == [down]
    with pytest.raises(IndexUnavailableError, match="down"):
        client.listing("other")


def test_a_place_is_a_url_or_what_is_beside_the_file_that_names_it(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place_of("https://example.org/x") == "https://example.org/x"
    assert place_of("my wheels", tmp_path) == wheels.as_uri()
    assert place_of("my wheels") is None
    monkeypatch.chdir(tmp_path)
    assert place_of("my wheels", tmp_path / "elsewhere") == wheels.as_uri()
    assert place_of(wheels.as_uri()) == wheels.as_uri()
    assert place_of((tmp_path / "no").as_uri()) is None


def test_a_local_file_gets_its_hash(make_client: MakeClient, server: IndexServer, wheels: Path) -> None:
    (file,) = make_client(server.index(), links=(wheels.as_uri(),)).project("other")
    content = (wheels / "other-2.0-py3-none-any.whl").read_bytes()
    assert hashed(file).hashes == {"sha256": hashlib.sha256(content).hexdigest()}
