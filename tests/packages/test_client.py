"""Who may answer for a name, what is kept on disk, and what happens offline."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.packages import cache
from envsolve.packages.client import IndexClient
from envsolve.packages.model import IndexFile
from envsolve.packages.settings import IndexSettings
from tests.indexcontent import Style
from tests.indexserver import S3_DENIAL, IndexServer
from tests.packages.conftest import MakeClient


def versions(files: tuple[IndexFile, ...]) -> list[str]:
    return [file.filename.split("-")[1] for file in files]


# --- who may answer -----------------------------------------------------------------------------------------------


def test_the_default_index_answers_alone_where_it_has_the_project(server: IndexServer, make_client: MakeClient) -> None:
    """Dependency confusion: the same name with a higher version on an extra index changes nothing."""
    main, extra = server.index(), server.index("/extra/")
    main.wheel("corp-lib", "1.0")
    extra.wheel("corp-lib", "99.0")
    client = make_client(main, extra)
    files = client.project("Corp_Lib")
    assert versions(files) == ["1.0"]
    assert files[0].index == main.url
    assert server.asked("/extra/") == 0


def test_extras_serve_what_the_default_index_lacks_the_first_that_has_it(
    server: IndexServer, make_client: MakeClient
) -> None:
    main, first, second = server.index(), server.index("/first/"), server.index("/second/")
    first.wheel("own", "1.0")
    second.wheel("own", "2.0")
    second.wheel("other", "3.0")
    client = make_client(main, first, second)
    assert versions(client.project("own")) == ["1.0"]
    assert versions(client.project("other")) == ["3.0"]
    assert client.project("nowhere") == ()


def test_indexes_are_merged_only_on_request(server: IndexServer, tmp_path: Path) -> None:
    """As pip does it; the index of a variant stays out, because it repeats old versions of common packages."""
    main, extra, variant = server.index(), server.index("/extra/"), server.index("/whl/cu126/", style="pytorch")
    main.wheel("lib", "1.0")
    main.wheel("lib", "2.0", tags="cp27-cp27mu-linux_x86_64")
    extra.wheel("lib", "1.5")
    extra.wheel("lib", "2.0")
    variant.wheel("lib", "3.0")
    variant.wheel("rare", "3.0")
    settings = IndexSettings(main.url, (extra.url, variant.url), strategy="unsafe-best-match")
    with IndexClient(settings, cache_dir=tmp_path) as client:
        files = client.project("lib")
        assert versions(files) == ["1.0", "1.5", "2.0", "2.0"]
        assert [file.index for file in files] == [main.url, extra.url, main.url, extra.url]
        assert versions(client.project("rare")) == ["3.0"]


def test_an_explicit_index_is_the_only_one_asked(server: IndexServer, make_client: MakeClient) -> None:
    main, extra, torch = server.index(), server.index("/extra/"), server.index("/whl/cu126/", style="pytorch")
    for index in (main, extra):
        index.wheel("torch", "99.0")
        index.wheel("torchvision", "99.0")
    torch.wheel("torch", "2.8.0+cu126")
    client = make_client(main, extra)
    assert versions(client.project("torch", index=torch.url)) == ["2.8.0+cu126"]
    assert client.project("torchvision", index=torch.url) == ()
    assert server.asked("/simple/") == server.asked("/extra/") == 0


def test_the_pages_of_different_indexes_are_kept_apart(server: IndexServer, make_client: MakeClient) -> None:
    main, torch = server.index(), server.index("/whl/cu126/", style="pytorch")
    main.wheel("torch", "2.8.0")
    torch.wheel("torch", "2.8.0+cu126")
    for _ in range(2):  # cold, then from the disk
        client = make_client(main)
        assert versions(client.project("torch")) == ["2.8.0"]
        assert versions(client.project("torch", index=torch.url)) == ["2.8.0+cu126"]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"status": 403},
        {"status": 401},
        {"status": 403, "body": S3_DENIAL},
        {"status": 200, "body": b"<form>log in</form>", "headers": {"Content-Type": "text/html"}},
        {"reset": True},
    ],
)
def test_a_default_index_that_fails_opens_no_way_to_the_extras(
    server: IndexServer, make_client: MakeClient, fault: dict[str, object]
) -> None:
    main, extra = server.index(), server.index("/extra/")
    extra.wheel("corp-lib", "99.0")
    server.fault("/simple/", **fault)  # type: ignore[arg-type]
    client = make_client(main, extra, retries=1)
    with pytest.raises(IndexUnavailableError, match="/simple/corp-lib/"):
        client.project("corp-lib")
    assert server.asked("/extra/") == 0


def test_a_project_without_files_is_a_project(server: IndexServer, make_client: MakeClient) -> None:
    main, extra = server.index(), server.index("/extra/")
    main.projects["held"] = []
    extra.wheel("held", "99.0")
    assert make_client(main, extra).project("held") == ()
    assert server.asked("/extra/") == 0


def test_one_index_cannot_speak_for_the_files_of_another(server: IndexServer, make_client: MakeClient) -> None:
    """An entry that claims another file's hash must not fill the cache for that file."""
    main, liar = server.index(metadata=False), server.index("/liar/", metadata=False)
    good = main.wheel("demo", "1.0", requires=["good"])
    liar.wheel("demo", "1.0", requires=["evil"])
    server.fault(
        "/liar/demo/",
        status=200,
        headers={"Content-Type": "text/html"},
        body=f'<a href="/liar/-files/demo-1.0-py3-none-any.whl#sha256={good.sha256}">x</a>'.encode(),
    )
    client = make_client(main)
    [evil] = client.project("demo", index=liar.url)
    assert evil.hashes["sha256"] == good.sha256
    assert client.metadata(evil).requires_dist == ("evil",)
    assert client.metadata(client.project("demo")[0]).requires_dist == ("good",)


# --- pages and the cache ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["json", "html", "pytorch", "both"])
def test_every_style_of_page(server: IndexServer, make_client: MakeClient, style: Style) -> None:
    index = server.index(style=style)
    index.wheel("demo", "1.0", requires_python=">=3.8,<4", yanked="bad")
    index.wheel("demo", "2.0+cu126", url="http://localhost:1/demo-2.0%2Bcu126-py3-none-any.whl")
    first, second = make_client(index).project("demo")
    assert (first.requires_python, first.yanked) == (">=3.8,<4", "bad")
    assert first.hashes == {"sha256": index.projects["demo"][0].sha256}
    assert first.url == f"{server.url}/simple/-files/demo-1.0-py3-none-any.whl"
    assert second.filename == "demo-2.0+cu126-py3-none-any.whl"
    assert second.url == "http://localhost:1/demo-2.0%2Bcu126-py3-none-any.whl"
    assert second.metadata_hashes is not None


def test_a_fresh_page_is_not_asked_for_again(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index(cache_control="max-age=600")
    index.wheel("demo", "1.0", upload_time="2024-01-01T00:00:00Z")
    cold = make_client(index).project("demo")
    assert make_client(index).project("demo") == cold
    assert server.asked("/simple/demo/") == 1


def test_an_absent_project_is_asked_for_again_except_offline(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    assert make_client(index).project("demo") == ()
    assert make_client(index, offline=True).project("demo") == ()
    index.wheel("demo", "1.0")
    assert versions(make_client(index).project("demo")) == ["1.0"]


@pytest.mark.parametrize("name", ["../extra/demo", "", "a/b", "x y", "?"])
def test_what_is_no_name_is_not_asked_for(server: IndexServer, make_client: MakeClient, name: str) -> None:
    client = make_client(server.index())
    with pytest.raises(UsageError, match="is not the name of a project"):
        client.project(name)
    assert not server.requests


@pytest.mark.parametrize(("control", "requests"), [("max-age=0", 2), ("no-cache", 2), (None, 1), ("no-store", 2)])
def test_cache_control(server: IndexServer, make_client: MakeClient, control: str | None, requests: int) -> None:
    index = server.index(cache_control=control, etag=False)
    index.wheel("demo", "1.0")
    for _ in range(2):
        assert versions(make_client(index).project("demo")) == ["1.0"]
    assert server.asked("/simple/demo/") == requests


def test_a_page_marked_no_store_is_not_on_disk(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index(cache_control="no-store")
    index.wheel("demo", "1.0")
    make_client(index).project("demo")
    with pytest.raises(IndexUnavailableError):
        make_client(index, offline=True).project("demo")


def test_a_stale_page_is_confirmed_by_its_etag(
    server: IndexServer, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = server.index(cache_control="max-age=600")
    index.wheel("demo", "1.0")
    cold = make_client(index).project("demo")
    monkeypatch.setattr(cache.Store.__init__, "__defaults__", (lambda: time.time() + 1000,))
    assert make_client(index).project("demo") == cold
    assert server.requests[-1].headers["If-None-Match"]
    assert make_client(index).project("demo") == cold  # the confirmation made it fresh
    assert server.asked("/simple/demo/") == 2
    index.wheel("demo", "2.0")
    monkeypatch.setattr(cache.Store.__init__, "__defaults__", (lambda: time.time() + 5000,))
    assert versions(make_client(index).project("demo")) == ["1.0", "2.0"]


def test_damaged_entries_are_fetched_again(server: IndexServer, make_client: MakeClient, tmp_path: Path) -> None:
    index = server.index()
    index.wheel("demo", "1.0", requires=["other"])
    client = make_client(index)
    metadata = client.metadata(client.project("demo")[0])
    entries = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert len(entries) == 2
    damages: list[Callable[[bytes], bytes]] = [
        lambda body: body[: len(body) // 2],
        lambda body: b"",
        lambda body: body[:-1] + bytes([body[-1] ^ 1]),
        lambda body: b"x" * 99,
    ]
    for damage in damages:
        for entry in entries:
            entry.write_bytes(damage(entry.read_bytes()))
        client = make_client(index)
        assert client.metadata(client.project("demo")[0]) == metadata
    assert server.asked("/simple/demo/") == 5


def test_a_cache_folder_that_takes_no_files_is_told_once(
    server: IndexServer, make_client: MakeClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "occupied").write_text("a file where the folder should be")
    index = server.index()
    index.wheel("demo", "1.0")
    index.wheel("other", "1.0")
    client = make_client(index, cache_dir=tmp_path / "occupied")
    with caplog.at_level(logging.WARNING):
        assert versions(client.project("demo")) == versions(client.project("other")) == ["1.0"]
    assert [r.message for r in caplog.records if "nothing is cached" in r.message and "occupied" in r.message] != []
    assert len(caplog.records) == 1


def test_offline_answers_from_the_cache_however_old_and_names_what_is_missing(
    server: IndexServer, make_client: MakeClient
) -> None:
    index = server.index(cache_control="max-age=0")
    index.wheel("demo", "1.0", requires=["other"])
    index.wheel("demo", "2.0")
    online = make_client(index)
    files = online.project("demo")
    online.metadata(files[0])
    asked = len(server.requests)
    offline = make_client(index, offline=True)
    assert offline.project("demo") == files
    assert offline.metadata(files[0]).requires_dist == ("other",)
    with pytest.raises(IndexUnavailableError, match=r"demo-2\.0-py3-none-any\.whl is not in the cache"):
        offline.metadata(files[1])
    with pytest.raises(IndexUnavailableError, match="the page of absent on http") as caught:
        offline.project("absent")
    assert "--offline" in (caught.value.hint or "")
    with pytest.raises(IndexUnavailableError, match="not in the cache"):
        offline.open(files[0])
    assert len(server.requests) == asked


def test_prefetch_is_joined(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    names = [f"demo-{n}" for n in range(40)]
    for name in names:
        index.wheel(name, "1.0", requires=[f"{name}-needs"])
    server.fault("/simple/", delay=0.1)
    client = make_client(index)
    client.prefetch(names)
    found = [client.project(name) for name in names]
    assert server.most_busy > 1, "not one after the other"
    files = [files[0] for files in found]
    client.prefetch_metadata(files)
    assert [client.metadata(file).requires_dist for file in files] == [(f"{name}-needs",) for name in names]
    client.prefetch(names)
    client.prefetch_metadata(files)
    assert len(server.requests) == 2 * len(names)


def test_a_background_failure_shows_when_asked_for(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    server.fault("/simple/demo/", status=400)
    client = make_client(index)
    client.prefetch(["demo"])
    with pytest.raises(IndexUnavailableError, match="400"):
        client.project("demo")


def test_local_indexes(tmp_path: Path, make_client: MakeClient, server: IndexServer) -> None:
    wheel = server.index().wheel("demo", "1.0+cpu", requires=["other"])
    folder = tmp_path / "simple" / "demo"
    folder.mkdir(parents=True)
    (tmp_path / wheel.filename).write_bytes(wheel.content)
    link = f"../../{wheel.filename.replace('+', '%2B')}"
    (folder / "index.html").write_text(f'<a href="{link}#sha256={wheel.sha256}">x</a>')
    client = make_client((tmp_path / "simple").as_uri(), offline=True)
    [file] = client.project("demo")
    assert file.filename == wheel.filename
    assert client.metadata(file).requires_dist == ("other",)
    assert client.open(file).read() == wheel.content
    assert client.project("absent") == ()
    with pytest.raises(IndexUnavailableError, match="does not exist"):
        make_client((tmp_path / "nowhere").as_uri()).project("demo")


def test_importing_the_client_does_not_import_requests() -> None:
    code = "import sys, envsolve.packages.client, envsolve.packages.settings; sys.exit('requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_close_forgets_what_still_waits(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    server.fault("/simple/", status=404, delay=0.5)
    with make_client(index) as client:
        assert isinstance(client, IndexClient)
        client.prefetch(f"demo-{n}" for n in range(200))
    time.sleep(0.3)
    assert len(server.requests) < 150, "most of what waited was never asked for"
