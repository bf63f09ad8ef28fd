"""Failures on the way: what is tried again, how soon it gives up, and what it says without telling secrets."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from envsolve.errors import IndexUnavailableError
from envsolve.packages.sockets import Resolver
from envsolve.packages.urls import join_project, origin, redact, split_login, without_logins
from tests.indexserver import IndexServer
from tests.packages.conftest import MakeClient

SECRET = "s3cr/t"


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"status": 500},
        {"status": 429, "headers": {"Retry-After": "0"}},
        {"reset": True},
        {"truncate": True},
    ],
)
def test_passing_trouble_passes(server: IndexServer, make_client: MakeClient, fault: dict[str, object]) -> None:
    index = server.index()
    index.wheel("demo", "1.0")
    server.fault("/simple/", times=2, **fault)  # type: ignore[arg-type]
    assert len(make_client(index).project("demo")) == 1
    assert server.asked("/simple/") == 3


def test_trouble_inside_a_ranged_read_passes_too(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index(metadata=False)
    index.wheel("demo", "1.0", requires=["a"])
    index.sdist("demo", "0.9", requires=["b"], padding=200_000)
    client = make_client(index)
    for file in client.project("demo"):
        server.fault("/simple/-files/", times=1, truncate=True)
        assert len(client.metadata(file).requires_dist) == 1


@pytest.mark.parametrize("status", [400, 405, 418, 451])
def test_a_plain_refusal_is_not_repeated(server: IndexServer, make_client: MakeClient, status: int) -> None:
    server.fault("/simple/", status=status)
    with pytest.raises(IndexUnavailableError, match=str(status)):
        make_client(server.index()).project("demo")
    assert server.asked("/simple/") == 1


def test_retries_end(server: IndexServer, make_client: MakeClient) -> None:
    server.fault("/simple/", status=503)
    with pytest.raises(IndexUnavailableError, match="503"):
        make_client(server.index(), retries=2).project("demo")
    assert server.asked("/simple/") == 3


def test_an_index_that_stops_answering(server: IndexServer, make_client: MakeClient) -> None:
    server.fault("/simple/", delay=5.0)
    started = time.monotonic()
    with pytest.raises(IndexUnavailableError, match="stopped answering"):
        make_client(server.index(), read_timeout=0.1).project("demo")
    assert time.monotonic() - started < 4.5
    assert server.asked("/simple/") == 2


def test_an_index_that_never_answered_is_not_waited_for_again(server: IndexServer, make_client: MakeClient) -> None:
    server.fault("/simple/", delay=5.0)
    client = make_client(server.index(), read_timeout=0.1)
    started = time.monotonic()
    for name in ("one", "two", "three", "four"):
        with pytest.raises(IndexUnavailableError, match="stopped answering"):
            client.project(name)
    assert time.monotonic() - started < 4.5
    assert server.asked("/simple/") == 2


@pytest.mark.parametrize("body", [b"", b"x" * 1000], ids=["head", "body"])
def test_an_index_that_drips(server: IndexServer, make_client: MakeClient, body: bytes) -> None:
    # Without a length, a cut body looks like a whole one.
    slow = {"X": "x" * 1000} if not body else {"Content-Type": "text/html"}
    server.fault("/simple/", body=body, headers=slow, drip=0.01)
    started = time.monotonic()
    with pytest.raises(IndexUnavailableError, match=r"127\.0\.0\.1.* not complete within 1 s"):
        make_client(server.index(), read_timeout=0.5, answer_timeout=1.0).project("demo")
    assert 0.9 < time.monotonic() - started < 6.0
    assert server.asked("/simple/") == 1


def test_an_answer_in_time_is_taken_after_its_time(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("demo", "1.0", requires=["a"])
    client = make_client(index, answer_timeout=0.3)
    [file] = client.project("demo")
    time.sleep(0.4)
    assert client.metadata(file).requires_dist == ("a",)  # over the same connection


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("address", "cause"),
    [("http://127.0.0.1:{port}/simple/", "refused"), ("http://no-such-host.invalid/simple/", "not known to the DNS")],
)
def test_a_dead_index_is_known_dead_in_about_a_second(make_client: MakeClient, address: str, cause: str) -> None:
    client = make_client(address.format(port=_free_port()))
    started = time.monotonic()
    client.prefetch(f"demo-{n}" for n in range(30))
    for n in range(30):
        with pytest.raises(IndexUnavailableError, match=cause) as caught:
            client.project(f"demo-{n}")
    assert time.monotonic() - started < 6.0, "not once for each"
    assert "--offline" in (caught.value.hint or "")


def test_a_dead_host_leaves_the_others_alone(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("demo", "1.0", requires=["a"])
    index.wheel("demo", "2.0", url=f"http://127.0.0.1:{_free_port()}/demo-2.0-py3-none-any.whl")
    client = make_client(index)
    alive, dead = client.project("demo")
    with pytest.raises(IndexUnavailableError, match="refused"):
        client.metadata(dead)
    assert client.metadata(alive).requires_dist == ("a",)


# --- credentials --------------------------------------------------------------------------------------------------


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


# --- addresses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.test/simple/", "https://a.test/simple/"),
        ("https://me:pass@a.test:8/x", "https://****@a.test:8/x"),
        ("https://token@a.test/", "https://****@a.test/"),
        ("https://me:p@ss@a.test/", "https://****@a.test/"),
        ("https://a.test:port/", "(an address that cannot be read)"),
    ],
)
def test_redact(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x @ git+https://me:p@ss@a.test/x@v1#egg=x", "x @ git+https://a.test/x@v1#egg=x"),
        ("git+https://token@a.test/x and http://a:b@c/d", "git+https://a.test/x and http://c/d"),
        ("git+ssh://git:pass@a.test/x", "git+ssh://git@a.test/x"),
        ("git+ssh://git@a.test/x", "git+ssh://git@a.test/x"),
        ("https://a.test/x@v1, me@example.org", "https://a.test/x@v1, me@example.org"),
    ],
)
def test_text_without_logins(text: str, shown: str) -> None:
    assert without_logins(text) == shown


def test_address_parts() -> None:
    assert split_login("https://me:p%40ss@a.test/x") == ("https://a.test/x", ("me", "p@ss"))
    assert split_login("https://me@a.test/x") == ("https://a.test/x", ("me", None))
    assert origin("HTTPS://A.test/x") == origin("https://a.test:443/y") != origin("http://a.test/x")
    assert join_project("https://a.test/simple", "x") == join_project("https://a.test/simple/", "x")


def test_a_name_is_looked_up_once_and_failures_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        if len(asked) == 1:
            raise socket.gaierror(-3, "try again")
        return [("address", host, port)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    resolver = Resolver()
    with pytest.raises(socket.gaierror):
        resolver.look_up("a.test", 80)
    assert resolver.look_up("a.test", 80) == resolver.look_up("a.test", 80) == [("address", "a.test", 80)]
    assert len(asked) == 2
