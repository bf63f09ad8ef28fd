"""HTTP: one session of requests with pooled connections, bounded retries, credentials and errors in plain words.

Importing this module imports requests, which takes longer than a plan from the cache: import it with the first request.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from threading import Event
from typing import Any, TypeVar

import requests
from requests.exceptions import InvalidProxyURL, InvalidSchema, InvalidURL, MissingSchema, TooManyRedirects
from requests.utils import get_environ_proxies
from urllib3 import exceptions as errors

from envsolve.errors import IndexUnavailableError
from envsolve.packages.adapter import (
    Adapter,
    BoundedRetry,
    add_certifi,
    chain,
    deadline,
    expired,
    has,
    tls_context,
    unchecked_context,
)
from envsolve.packages.model import DeniedError
from envsolve.packages.settings import IndexSettings
from envsolve.packages.urls import Credentials, origin, redact

# Not an import: the root names all of the public API, so that this module would depend on everything.
_VERSION: str = sys.modules["envsolve"].__version__

Result = TypeVar("Result")

_ABSENT = (404, 410)
_NOT_USABLE = (InvalidURL, InvalidSchema, MissingSchema, TooManyRedirects, errors.LocationValueError)
_TIMED_OUT = (errors.ReadTimeoutError, TimeoutError)
_LONGEST_REPEATED = 30.0  # seconds: a read that may take longer is not repeated after it timed out
_SHORT_REST = 64 * 1024  # bytes: a shorter rest of a response is read, so that its connection can be used again
_CHECK_NETWORK = "check the network, the proxy and the index URL; --offline plans from what is cached"


class Session:
    """Sends every request. Thread-safe."""

    def __init__(self, settings: IndexSettings, credentials: Credentials, *, connections: int = 32) -> None:
        """Raises: UsageError: The certificates cannot be read."""
        self._settings = settings
        self._credentials = credentials
        self._closing = Event()
        self._dead: dict[str, IndexUnavailableError] = {}
        self._alive: set[str] = set()
        bundle, client = settings.ca_bundle, settings.client_cert
        source = settings.sources.get("ca_bundle" if bundle else "client_cert", "the index settings")
        self._context = tls_context(bundle, client, source)
        # A read that timed out has cost many seconds already.
        self._timeouts = min(settings.retries, 1 if settings.read_timeout <= _LONGEST_REPEATED else 0)
        retry = BoundedRetry.of(settings.retries, self._timeouts, self._closing)
        adapter = Adapter(self._context, retry, connections)
        self._session = _Requests()
        self._session.headers["User-Agent"] = f"envsolve/{_VERSION}"
        # Indexes need no cookies, and one session serves them all.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)
        # A context of its own: urllib3 writes the verify mode of a connection into the context that it shares.
        unchecked = Adapter(unchecked_context(), retry, connections)
        for host in settings.trusted_hosts:
            place = host.rpartition("://")[2].rstrip("/").lower()
            self._session.mount(f"https://{place}/", unchecked)
            if ":" not in place.rpartition("]")[2]:
                self._session.mount(f"https://{place}:", unchecked)  # a host without a port: trusted on every port
        # requests would read the whole environment three times for each request.
        self._environment_proxies = lru_cache(get_environ_proxies)

    def close(self) -> None:
        """Drop the connections; requests under way are not repeated."""
        self._closing.set()
        self._session.close()

    def get(
        self,
        url: str,
        read: Callable[[requests.Response], Result],
        headers: Mapping[str, str] | None = None,
        *,
        time_limit: float | None = None,
    ) -> Result | None:
        """Send a GET and read the response, both again if the connection breaks or the host is busy.

        Args:
            url: URL without credentials.
            read: Takes the response (any status below 400) with its body unread, and reads what it needs of it.
            headers: Request headers.
            time_limit: Seconds within which the response must be complete. None for large files: as long as bytes
                keep coming.

        Returns:
            What ``read`` returns, or None if the host has no such file (404, 410).

        Raises:
            DeniedError: 401 or 403, with the credentials of the index URL, netrc and keyring tried.
            IndexUnavailableError: The host does not answer, or answers with another error.
        """
        place, breaks, trusts_certifi = origin(url), 0, self._settings.ca_bundle is not None
        while True:
            if place in self._dead:
                raise self._dead[place]
            if self._closing.is_set():
                raise IndexUnavailableError(f"{redact(url)} was not read: the client is closed")
            login = self._credentials.known(url)
            response = None
            with deadline(time_limit):
                try:
                    with self._sent(url, headers, login) as response:
                        self._alive.add(place)
                        status = response.status_code
                        if status < 400:
                            return read(response)
                        body = response.raw.read(_SHORT_REST, decode_content=True)
                    if status in _ABSENT:
                        return None
                    if status == 401 and self._credentials.ask_keyring(url, login):
                        continue
                    raise _refusal(url, response, body, self._credentials)
                except _NOT_USABLE as error:
                    cause = "it is not a usable URL, or leads to none"
                    raise IndexUnavailableError(f"{redact(url)} cannot be read: {cause}") from error
                except (requests.RequestException, errors.HTTPError, OSError) as error:
                    # A system without current authorities (an old image) still reads the default index.
                    if not trusts_certifi and has(error, ssl.SSLCertVerificationError):
                        trusts_certifi = True
                        add_certifi(self._context)
                        continue
                    # urllib3 repeats a request until its headers are there; a body that breaks off is repeated here.
                    allowed = self._timeouts if has(error, *_TIMED_OUT) else self._settings.retries
                    if response is None or breaks >= allowed or expired():
                        raise self._failure(url, error, time_limit) from error
            breaks += 1
            self._closing.wait(0.25 * 2**breaks)

    @contextmanager
    def _sent(
        self, url: str, headers: Mapping[str, str] | None, login: tuple[str, str] | None
    ) -> Iterator[requests.Response]:
        # RFC 7617 lets the server choose the charset, and all that choose take UTF-8; requests would encode Latin-1.
        auth = (login[0].encode(), login[1].encode()) if login else None
        request = self._session.prepare_request(requests.Request("GET", url, dict(headers or {}), auth=auth))
        timeout = (self._settings.connect_timeout, self._settings.read_timeout)
        proxy = self._settings.proxy
        proxies = {"http": proxy, "https": proxy} if proxy else self._environment_proxies(f"{origin(url)}/")
        # Session.send, not Session.request: that one would add REQUESTS_CA_BUNDLE to the certificates of the settings.
        response = self._session.send(request, stream=True, timeout=timeout, proxies=proxies)
        try:
            yield response
        finally:
            left = response.raw.length_remaining
            if left is not None and left < _SHORT_REST:
                response.raw.drain_conn()
            response.close()

    def _failure(self, url: str, error: Exception, time_limit: float | None) -> IndexUnavailableError:
        """The error to raise; a host that will fail the next request in the same way is remembered as dead."""
        cause, lasting = _cause(error)
        if expired():
            cause = f"its response was not complete within {time_limit:g} s"
        failure = IndexUnavailableError(f"{redact(url)} cannot be read: {cause}", hint=_CHECK_NETWORK)
        # A redirect may have led elsewhere: the host that failed is the one that the last request went to.
        request = getattr(error, "request", None)
        place = origin(request.url) if lasting and request is not None else origin(url)
        if lasting or expired() or (has(error, *_TIMED_OUT) and place not in self._alive):
            self._dead.setdefault(place, failure)
        return failure


class _Requests(requests.Session):
    """requests.Session with index URLs before netrc on redirects too."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        untyped: Any = super()
        kept = prepared_request.headers.get("Authorization")
        untyped.rebuild_auth(prepared_request, response)
        # requests replaces a login that may go along by the one in netrc.
        if kept and not untyped.should_strip_auth(response.request.url, prepared_request.url):
            prepared_request.headers["Authorization"] = kept


def _refusal(url: str, response: requests.Response, body: bytes, credentials: Credentials) -> IndexUnavailableError:
    status, shown = response.status_code, redact(url)
    if status in (401, 403):
        return DeniedError(
            f"{shown} is denied ({status}): {credentials.describe(origin(url))}",
            hint="put them into the index URL, ~/.netrc or keyring, or remove the index from your configuration",
            may_mean_absent=status == 403 and b"<Code>AccessDenied</Code>" in body,
        )
    cause = f"the host answered {status} {response.reason}"
    if status == 407:
        cause = "the proxy asks for credentials"
    return IndexUnavailableError(f"{shown} cannot be read: {cause}", hint=_CHECK_NETWORK)


def _cause(error: Exception) -> tuple[str, bool]:
    """What went wrong in plain words, and whether the next request to the host would fail in the same way."""
    cause = next((words for kinds, words in _CAUSES if has(error, *kinds)), None)
    if cause is None:
        return "it stopped answering" if has(error, *_TIMED_OUT) else "the connection broke off", False
    untrusted = (e.verify_message for e in chain(error) if isinstance(e, ssl.SSLCertVerificationError))
    return cause.format(detail=next(untrusted, "handshake failed")), True


# In this order: a proxy error wraps the others, and NewConnectionError is a ConnectTimeoutError.
_CAUSES: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((errors.ProxyError, InvalidProxyURL), "the proxy cannot be reached or refuses"),
    ((errors.NameResolutionError, socket.gaierror), "its host name is not known to the DNS"),
    (
        (errors.SSLError, ssl.SSLError),
        "its certificate is not trusted ({detail}); PIP_CERT or SSL_CERT_FILE names other authorities",
    ),
    ((ConnectionRefusedError,), "the connection is refused"),
    ((errors.NewConnectionError,), "the host cannot be reached"),
    ((errors.ConnectTimeoutError,), "no connection within the time limit"),
)
