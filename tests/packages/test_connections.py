"""The way of one request: redirects and who is told what along them, proxies, certificates."""

from __future__ import annotations

import socket
import ssl
import subprocess
from base64 import b64encode
from pathlib import Path

import certifi
import pytest

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.packages import connections
from tests.indexserver import IndexServer
from tests.packages.conftest import MakeClient

SECRET = "s3cr/t"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
        with pytest.raises(IndexUnavailableError, match="leads to"):
            make_client(server.index()).project("demo")


def test_endless_redirects(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("other", "1.0")
    server.fault("/simple/demo/", status=302, headers={"Location": "/simple/demo/"})
    client = make_client(index)
    with pytest.raises(IndexUnavailableError, match="leads to none"):
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
        make_client("http://far.test/simple/", proxy=f"http://u:{SECRET[:4]}@127.0.0.1:{_free_port()}").project("demo")
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
    connections._load_context.cache_clear()
    try:
        assert make_client(index).project("demo")
    finally:
        connections._load_context.cache_clear()  # the next test does not trust it


def test_a_certificate_file_that_is_not_there(make_client: MakeClient) -> None:
    with pytest.raises(UsageError, match=r"/no/such\.pem"):
        make_client("https://far.test/", ca_bundle="/no/such.pem").project("demo")
