"""Credentials: where they come from, and who gets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.errors import IndexUnavailableError
from tests.indexserver import IndexServer
from tests.packages.conftest import MakeClient

SECRET = "s3cr/t"


def test_credentials_in_the_address(server: IndexServer, make_client: MakeClient, tmp_path: Path) -> None:
    index = server.index(auth=("me", SECRET), metadata=False)
    index.wheel("demo", "1.0", requires=["a"])
    client = make_client(index.url_with_login)
    [file] = client.project("demo")
    assert client.metadata(file).requires_dist == ("a",)
    assert SECRET not in repr(file)
    assert file.index == index.url
    for path in (tmp_path / "cache").rglob("*"):
        assert "s3cr" not in str(path)
        assert not path.is_file() or b"s3cr" not in path.read_bytes()


def test_a_wrong_password_is_not_answered_from_the_cache(
    server: IndexServer, make_client: MakeClient, tmp_path: Path
) -> None:
    index = server.index(auth=("me", SECRET))
    index.wheel("demo", "1.0")
    assert make_client(index.url_with_login, cache_dir=tmp_path / "cache").project("demo")
    wrong = make_client(index.url.replace("://", "://me:wrong@"), cache_dir=tmp_path / "cache")
    with pytest.raises(IndexUnavailableError):
        wrong.project("demo")


def test_two_indexes_of_one_host_with_their_own_credentials(server: IndexServer, make_client: MakeClient) -> None:
    one, two = server.index("/one/", auth=("a", "1")), server.index("/two/", auth=("b", "2"))
    one.wheel("demo", "1.0")
    two.wheel("other", "1.0")
    two.auth, one.auth = ("b", "2"), ("a", "1")
    client = make_client(one.url_with_login, two.url_with_login)
    assert client.project("demo", index=one.url)
    assert client.project("other", index=two.url)


def test_credentials_stay_with_their_host(server: IndexServer, make_client: MakeClient) -> None:
    with IndexServer() as elsewhere:
        files = elsewhere.index("/f/")
        entry = files.wheel("demo", "1.0", requires=["a"])
        index = server.index(auth=("me", SECRET), metadata=False)
        index.wheel("demo", "1.0", url=f"{elsewhere.url}{entry.url}")
        client = make_client(index.url_with_login)
        client.metadata(client.project("demo")[0])
        assert elsewhere.requests
        assert all("Authorization" not in r.headers for r in elsewhere.requests)
    assert all("Authorization" in r.headers for r in server.requests)


def test_credentials_in_netrc(server: IndexServer, make_client: MakeClient, tmp_path: Path) -> None:
    index = server.index(auth=("me", SECRET))
    index.wheel("demo", "1.0")
    (tmp_path / "home/.netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    assert make_client(index).project("demo")


def _fake_keyring(folder: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder.mkdir()
    log = folder / "log"
    command = folder / "keyring"
    command.write_text(f'#!/bin/sh\necho "$@" >> {log}\nsleep 0.1\n{lines}\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return log


def test_credentials_from_the_keyring_command(
    server: IndexServer, make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _fake_keyring(tmp_path / "bin", f"echo me\necho '{SECRET}'", monkeypatch)
    index = server.index(auth=("me", SECRET))
    index.wheel("demo", "1.0")
    names = [f"demo-{n}" for n in range(12)]
    for name in names:
        index.wheel(name, "1.0")
    client = make_client(index, keyring="subprocess")
    client.prefetch(names)  # all of them meet the 401 before keyring has answered
    assert all(client.project(name) for name in names)
    assert client.project("demo")
    assert log.read_text() == f"--mode creds get {index.url}\n"
    with pytest.raises(IndexUnavailableError, match="no credentials are known"):
        make_client(index, keyring="disabled", cache_dir=tmp_path / "other").project("demo")


def test_keyring_is_asked_for_the_user_of_the_address(
    server: IndexServer, make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _fake_keyring(tmp_path / "bin", f"echo '{SECRET}'", monkeypatch)
    index = server.index(auth=("me", SECRET))
    index.wheel("demo", "1.0")
    client = make_client(index.url.replace("://", "://me@"), keyring="subprocess")
    assert client.project("demo")
    assert log.read_text() == f"get {index.url} me\n"


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_named_and_not_shown(server: IndexServer, make_client: MakeClient, status: int) -> None:
    index = server.index(auth=("me", "other"))
    server.fault("/simple/", status=status)
    address = index.url.replace("://", "://me:wr0ng@")
    with pytest.raises(IndexUnavailableError, match="credentials were refused") as caught:
        make_client(address).project("demo")
    told = f"{caught.value} {caught.value.hint} {caught.value!r}"
    assert "wr0ng" not in told
    assert index.url in told
