"""Sending requests: what is repeated, how soon it gives up, redirects, proxies, certificates and credentials."""

from __future__ import annotations

import ssl
import subprocess
import time
from base64 import b64encode
from pathlib import Path

import certifi
import pytest
from urllib3 import HTTPResponse

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.packages import http
from envsolve.packages.http import BoundedRetry, tls_context
from tests.indexserver import IndexServer, free_port
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


# A wait that is not cut short takes ten minutes in these tests, so that a busy computer cannot be taken for one.


def test_closing_ends_a_wait(server: IndexServer, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_LONGEST_WAIT", 600.0)
    server.fault("/simple/", status=429, headers={"Retry-After": "3600"})
    client = make_client(server.index())
    client.prefetch(["demo"])
    started = time.monotonic()
    while not server.requests:
        time.sleep(0.01)
    client.close()
    with pytest.raises(IndexUnavailableError, match="429"):
        client.project("demo")
    assert time.monotonic() - started < 300


@pytest.mark.parametrize(("said", "seconds"), [("0", 0), ("3600", 10.0), ("soon", None)])
def test_a_long_retry_after_is_cut(said: str, seconds: float | None) -> None:
    assert BoundedRetry().get_retry_after(HTTPResponse(headers={"Retry-After": said})) == seconds


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
    server.fault("/simple/", delay=600.0)
    started = time.monotonic()
    with pytest.raises(IndexUnavailableError, match="stopped responding"):
        make_client(server.index(), read_timeout=0.1).project("demo")
    assert time.monotonic() - started < 300
    assert server.asked("/simple/") == 2


def test_an_index_that_never_answered_is_not_waited_for_again(server: IndexServer, make_client: MakeClient) -> None:
    server.fault("/simple/", delay=600.0)
    client = make_client(server.index(), read_timeout=0.1)
    started = time.monotonic()
    for name in ("one", "two", "three", "four"):
        with pytest.raises(IndexUnavailableError, match="stopped responding"):
            client.project(name)
    assert time.monotonic() - started < 300
    assert server.asked("/simple/") == 2


@pytest.mark.parametrize("body", [b"", b"x" * 1000], ids=["head", "body"])
def test_an_index_that_drips(server: IndexServer, make_client: MakeClient, body: bytes) -> None:
    # Without a length, a cut body looks like a whole one.
    slow = {"X": "x" * 1000} if not body else {"Content-Type": "text/html"}
    server.fault("/simple/", body=body, headers=slow, drip=0.01)
    started = time.monotonic()
    with pytest.raises(IndexUnavailableError, match=r"127\.0\.0\.1.* not complete within 1 s"):
        make_client(server.index(), read_timeout=300, answer_timeout=1.0).project("demo")
    assert time.monotonic() - started > 0.9
    assert server.asked("/simple/") == 1


def test_an_answer_in_time_is_taken_after_its_time(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("demo", "1.0", requires=["a"])
    client = make_client(index, answer_timeout=1.5)
    [file] = client.project("demo")
    time.sleep(1.6)
    assert client.metadata(file).requires_dist == ("a",)  # over the same connection


@pytest.mark.parametrize(
    ("address", "cause"),
    [("http://127.0.0.1:{port}/simple/", "refused"), ("http://no-such-host.invalid/simple/", "cannot be resolved")],
)
def test_a_dead_index_is_known_dead_in_about_a_second(make_client: MakeClient, address: str, cause: str) -> None:
    client = make_client(address.format(port=free_port()))
    started = time.monotonic()
    client.prefetch(f"demo-{n}" for n in range(300))
    for n in range(300):
        with pytest.raises(IndexUnavailableError, match=cause) as caught:
            client.project(f"demo-{n}")
    assert time.monotonic() - started < 60, "a quarter of a second, and not once for each"
    assert "--offline" in (caught.value.hint or "")


def test_a_dead_host_leaves_the_others_alone(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("demo", "1.0", requires=["a"])
    index.wheel("demo", "2.0", url=f"http://127.0.0.1:{free_port()}/demo-2.0-py3-none-any.whl")
    client = make_client(index)
    alive, dead = client.project("demo")
    with pytest.raises(IndexUnavailableError, match="refused"):
        client.metadata(dead)
    assert client.metadata(alive).requires_dist == ("a",)


# --- redirects, proxies, certificates ---------------------------------------------------------------------------------


def test_a_redirect_moves_the_base_of_relative_links(server: IndexServer, make_client: MakeClient) -> None:
    index, moved = server.index(), server.index("/moved/", style="html")
    moved.wheel("demo", "1.0", url="../-files/demo-1.0-py3-none-any.whl")
    server.fault("/simple/demo/", status=301, headers={"Location": "/moved/demo/"})
    [file] = make_client(index).project("demo")
    assert file.url == f"{server.url}/moved/-files/demo-1.0-py3-none-any.whl"
    assert file.index == index.url


def test_a_portal_on_another_host_is_no_index(server: IndexServer, make_client: MakeClient) -> None:
    with IndexServer() as portal:
        portal.fault("/", status=200, body=b"<h1>Welcome, guest</h1>", headers={"Content-Type": "text/html"})
        server.fault("/simple/", status=302, headers={"Location": f"{portal.url}/welcome"})
        with pytest.raises(IndexUnavailableError, match="redirects to"):
            make_client(server.index()).project("demo")


def test_endless_redirects(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("other", "1.0")
    server.fault("/simple/demo/", status=302, headers={"Location": "/simple/demo/"})
    client = make_client(index)
    with pytest.raises(IndexUnavailableError, match="redirects to an unusable one"):
        client.project("demo")
    assert client.project("other")  # the host is not dead


def test_a_redirect_takes_no_credentials_elsewhere(
    server: IndexServer, make_client: MakeClient, tmp_path: Path
) -> None:
    with IndexServer() as elsewhere:
        moved = elsewhere.index("/moved/")
        moved.wheel("demo", "1.0")
        index = server.index(auth=("me", SECRET))
        here = server.index("/here/", auth=("me", SECRET))
        here.wheel("other", "1.0")
        server.fault("/simple/demo/", status=302, headers={"Location": f"{elsewhere.url}/moved/demo/"})
        server.fault("/simple/other/", status=302, headers={"Location": "/here/other/"})
        client = make_client(index.url_with_login)
        assert client.project("demo")
        assert client.project("other")
        assert all("Authorization" in r.headers for r in server.requests)
        assert all("Authorization" not in r.headers for r in elsewhere.requests)
        # Unless they are that host's own.
        (tmp_path / "home/.netrc").write_text(f"machine 127.0.0.1 login you password {SECRET}\n")
        moved.auth = ("you", SECRET)
        assert make_client(index.url_with_login, cache_dir=tmp_path / "other").project("demo")


def test_a_redirect_on_the_same_host_keeps_the_login_of_the_index(
    server: IndexServer, make_client: MakeClient, tmp_path: Path
) -> None:
    index, here = server.index(auth=("me", SECRET)), server.index("/here/", auth=("me", SECRET))
    here.wheel("demo", "1.0")
    server.fault("/simple/demo/", status=302, headers={"Location": "/here/demo/"})
    (tmp_path / "home/.netrc").write_text("machine 127.0.0.1 login you password other\n")
    assert make_client(index.url_with_login).project("demo")


def test_no_cookie_is_kept(server: IndexServer, make_client: MakeClient) -> None:
    server.fault("/simple/demo/", status=404, headers={"Set-Cookie": "who=me; Path=/"})
    client = make_client(server.index())
    client.project("demo")
    client.project("other")
    assert all("Cookie" not in request.headers for request in server.requests)


def test_a_proxy_is_used(server: IndexServer, make_client: MakeClient) -> None:
    # A proxy gets the whole address as the path: the loopback index records it and has no such path.
    client = make_client("http://far.test/simple/", proxy=server.url)
    assert client.project("demo") == ()
    assert server.requests[0].path == "http://far.test/simple/demo/"


def test_the_proxy_of_the_environment_is_used_where_it_is_for_a_host(
    server: IndexServer, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url.replace("://", "://me:pass%40word@"))
    monkeypatch.setenv("no_proxy", "near.test,127.0.0.1")
    index = server.index()
    index.wheel("demo", "1.0")
    assert make_client(index).project("demo")
    assert server.requests.pop().path == "/simple/demo/"
    assert make_client("http://far.test/simple/").project("demo") == ()
    assert server.requests[0].path == "http://far.test/simple/demo/"
    assert server.requests[0].headers["Proxy-Authorization"] == "Basic " + b64encode(b"me:pass@word").decode()


def test_a_dead_proxy_is_named_as_the_cause(make_client: MakeClient) -> None:
    with pytest.raises(IndexUnavailableError, match="the proxy") as caught:
        make_client("http://far.test/simple/", proxy=f"http://u:{SECRET[:4]}@127.0.0.1:{free_port()}").project("demo")
    assert SECRET[:4] not in str(caught.value)


@pytest.fixture
def tls(server: IndexServer, tmp_path: Path) -> tuple[IndexServer, str]:
    """The server behind TLS with a certificate of its own, and the path of that certificate."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", certificate, *subject], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl command")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.use_tls(context)
    return server, str(certificate)


def test_an_unknown_certificate_is_refused_and_the_way_out_named(
    tls: tuple[IndexServer, str], make_client: MakeClient
) -> None:
    server, certificate = tls
    index = server.index()
    index.wheel("demo", "1.0")
    with pytest.raises(IndexUnavailableError, match=r"not trusted .*PIP_CERT"):
        make_client(index).project("demo")
    assert make_client(index, ca_bundle=certificate).project("demo")
    assert make_client(index, trusted_hosts=("127.0.0.1",)).project("demo")
    assert make_client(index, trusted_hosts=(f"127.0.0.1:{server.port}",)).project("demo")


def test_what_the_system_does_not_trust_certifi_may(
    tls: tuple[IndexServer, str], make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, certificate = tls
    index = server.index()
    index.wheel("demo", "1.0")
    monkeypatch.setattr(certifi, "where", lambda: certificate)
    tls_context.cache_clear()
    try:
        assert make_client(index).project("demo")
    finally:
        tls_context.cache_clear()  # the next test does not trust it


def test_a_certificate_file_that_is_not_there(make_client: MakeClient) -> None:
    with pytest.raises(UsageError, match=r"/no/such\.pem"):
        make_client("https://far.test/", ca_bundle="/no/such.pem").project("demo")
