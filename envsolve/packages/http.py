"""HTTP: one session of requests with pooled connections, bounded retries, credentials and errors in plain words.

Importing this module imports requests, which takes longer than a plan from the cache: import it with the first request.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from threading import Event
from typing import Any, TypeVar, cast

import certifi
import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidProxyURL, InvalidSchema, InvalidURL, MissingSchema, TooManyRedirects
from requests.utils import get_environ_proxies
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Retry
from urllib3 import exceptions as errors
from urllib3.util.ssl_ import create_urllib3_context

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.packages.model import DeniedError
from envsolve.packages.settings import IndexSettings
from envsolve.packages.urls import Credentials, origin, redact
from envsolve.system.limits import SLOWEST
from envsolve.system.progress import received

Result = TypeVar("Result")
# 408 and 425 invite another try (RFC 9110, RFC 8470); 429 and 503 may carry a Retry-After.
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_LONGEST_WAIT = 10.0  # seconds, whatever a Retry-After header asks for
_NOT_USABLE = (InvalidURL, InvalidSchema, MissingSchema, TooManyRedirects, errors.LocationValueError)
_TIMED_OUT = (errors.ReadTimeoutError, TimeoutError)
_LONGEST_REPEATED = 30.0  # seconds: a read that may take longer is not repeated after it timed out
_SHORT_REST = 64 * 1024  # bytes: a shorter rest of a response is read, so that its connection can be used again
_CHECK_NETWORK = "check the network, the proxy and the index URL; --offline uses only cached files"


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and those it wraps: requests and urllib3 put the socket's into args or ``reason``."""
    found: list[BaseException] = []
    queue: list[Any] = [error]
    for item in queue:
        if isinstance(item, BaseException) and item not in found:
            found.append(item)
            queue += [*item.args, getattr(item, "reason", None), item.__cause__, item.__context__]
    return found


def _has(error: BaseException, *kinds: type[BaseException]) -> bool:
    return any(isinstance(e, kinds) for e in _chain(error))


class BoundedRetry(Retry):
    """Counts retries as urllib3 does, but skips hopeless ones, and its waits are short and can be interrupted."""

    closing: Event  # once it is set, nothing is repeated
    timeouts: int  # how often a read that timed out is repeated

    @classmethod
    def of(cls, retries: int, timeouts: int, closing: Event) -> BoundedRetry:
        """The retries of a session."""
        retry = cls(
            total=retries,
            connect=min(1, retries),
            other=0,  # TLS: a certificate does not become valid by asking again
            status_forcelist=_BUSY,
            backoff_factor=0.25,
            backoff_max=_LONGEST_WAIT,
            backoff_jitter=0.1,
            raise_on_status=False,
        )
        retry.closing, retry.timeouts = closing, timeouts
        return retry

    def new(self, **changes: Any) -> BoundedRetry:
        """A copy with other counts."""
        copy = super().new(**changes)
        copy.closing, copy.timeouts = self.closing, self.timeouts
        return copy

    def increment(
        self, method: Any = None, url: Any = None, response: Any = None, error: Any = None, *rest: Any, **more: Any
    ) -> BoundedRetry:
        """The state after one more retry, or MaxRetryError."""
        if error is not None and not self._may_pass(error):
            raise errors.MaxRetryError(cast("HTTPConnectionPool", more.get("_pool")), url, error) from error
        return super().increment(method, url, response, error, *rest, **more)

    def _may_pass(self, error: Exception) -> bool:
        if self.closing.is_set() or _expired():
            return False
        if isinstance(error, errors.ReadTimeoutError):
            return sum(isinstance(past.error, errors.ReadTimeoutError) for past in self.history) < self.timeouts
        if any(isinstance(e, socket.gaierror) and e.errno == socket.EAI_NONAME for e in _chain(error)):
            return False
        # urllib3 derives NewConnectionError, which comes at once, from ConnectTimeoutError, which takes its time.
        return isinstance(error, errors.NewConnectionError) or not isinstance(error, errors.ConnectTimeoutError)

    def get_retry_after(self, response: Any) -> float | None:
        """Seconds that the host asks to wait, up to a limit."""
        with suppress(errors.InvalidHeader):
            if (seconds := super().get_retry_after(response)) is not None:
                return min(seconds, _LONGEST_WAIT)
        return None

    def sleep(self, response: Any = None) -> None:
        """Wait, unless the session is closed."""
        asked = self.get_retry_after(response) if response is not None else None
        self.closing.wait(self.get_backoff_time() if asked is None else asked)


# A socket's time limit counts from byte to byte, so a host that drips would hold its reader for ever. The limit of a
# whole response is therefore checked at each read of the socket, in the thread that entered the block.
_until: ContextVar[float | None] = ContextVar("until", default=None)


@contextmanager
def _deadline(seconds: float | None) -> Iterator[None]:
    """Make every response that is read in the block complete within some seconds."""
    token = _until.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def _expired() -> bool:
    return (until := _until.get()) is not None and time.monotonic() >= until


class _Timed(io.RawIOBase):
    """The reading end of a socket until a deadline."""

    def __init__(self, raw: io.RawIOBase, connected: socket.socket, until: float) -> None:
        self._raw, self._socket, self._until = raw, connected, until
        self._longest, self._received = connected.gettimeout(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until + self._received / SLOWEST - time.monotonic()
        if left <= 0:
            raise TimeoutError("the response is not complete in time")
        self._socket.settimeout(left if self._longest is None else min(left, self._longest))
        self._received += (count := cast("int | None", self._raw.readinto(buffer))) or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        if (until := _until.get()) is not None:
            self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, until))


def _timed(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """The class of connection pools whose responses have the time limit."""
    connection = type("Connection", (pool.ConnectionCls,), {"response_class": _Response})
    return type("Pool", (pool,), {"ConnectionCls": connection})


_POOLS = {"http": _timed(HTTPConnectionPool), "https": _timed(HTTPSConnectionPool)}


class _Adapter(HTTPAdapter):
    """Connections with one TLS context: requests would read its authorities anew for every connection."""

    def __init__(self, context: ssl.SSLContext, retry: Retry, connections: int) -> None:
        self._context = context
        super().__init__(pool_connections=32, pool_maxsize=connections, max_retries=retry)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        options["ssl_context"] = self._context
        if proxy.lower().startswith("socks"):
            return super().proxy_manager_for(proxy, **options)
        manager = super().proxy_manager_for(proxy, proxy_ssl_context=self._context, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        # The context says what is trusted: requests would keep a pool for each setting of certificates.
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        pass  # the context says what is verified


@lru_cache(maxsize=4)
def tls_context(bundle: str | None, client: str | None, source: str) -> ssl.SSLContext:
    """One context for all connections: loading the authorities takes tens of milliseconds."""
    try:
        if bundle is None:
            context = ssl.create_default_context()
            if not context.cert_store_stats()["x509_ca"]:
                context.load_verify_locations(certifi.where())
        else:
            directory, file = (bundle, None) if Path(bundle).is_dir() else (None, bundle)
            context = ssl.create_default_context(cafile=file, capath=directory)
        if client is not None:
            context.load_cert_chain(client)
    except (OSError, ssl.SSLError) as error:
        message = f"the certificates in {bundle or client} cannot be read: {error}"
        raise UsageError(message, hint=f"set in {source}") from None
    return context


class Session:
    """Sends every request. Thread-safe."""

    def __init__(self, settings: IndexSettings, credentials: Credentials, *, connections: int = 32) -> None:
        """Raises: UsageError: The certificates cannot be read."""
        self._settings, self._credentials, self._closing = settings, credentials, Event()
        self._dead: dict[str, IndexUnavailableError] = {}
        self._alive: set[str] = set()
        bundle, client = settings.ca_bundle, settings.client_cert
        source = settings.sources.get("ca_bundle" if bundle else "client_cert", "the index settings")
        self._context = tls_context(bundle, client, source)
        # A read that timed out has cost many seconds already.
        self._timeouts = min(settings.retries, 1 if settings.read_timeout <= _LONGEST_REPEATED else 0)
        retry = BoundedRetry.of(settings.retries, self._timeouts, self._closing)
        adapter = _Adapter(self._context, retry, connections)
        self._session = _Requests()
        # Not an import: the root names all of the public API, so that this module would depend on everything.
        self._session.headers["User-Agent"] = f"envsolve/{sys.modules['envsolve'].__version__}"
        # Indexes need no cookies, and one session serves them all.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        for scheme in _POOLS:
            self._session.mount(f"{scheme}://", adapter)
        # A context of its own: urllib3 writes the verify mode of a connection into the context that it shares.
        unchecked = _Adapter(create_urllib3_context(cert_reqs=ssl.CERT_NONE), retry, connections)
        for host in settings.trusted_hosts:
            self._session.mount(f"https://{(place := host.rpartition('://')[2].rstrip('/').lower())}/", unchecked)
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
            read: Takes the response (any status below 400) with its body unread.
            time_limit: Seconds within which the response must be complete, and one more for each 8 KiB received.

        Returns:
            The result of ``read``, or None if the host has no such file.

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
            with _deadline(time_limit):
                try:
                    with self._sent(url, headers, login) as response:
                        self._alive.add(place)
                        status = response.status_code
                        if status < 400:
                            return read(response)
                        body = response.raw.read(_SHORT_REST, decode_content=True)
                    if status in (404, 410):
                        return None
                    if status == 401 and self._credentials.ask_keyring(url, login):
                        continue
                    raise _refusal(url, response, body, self._credentials)
                except _NOT_USABLE as error:
                    cause = "it is not a usable URL, or redirects to an unusable one"
                    raise IndexUnavailableError(f"{redact(url)} cannot be read: {cause}") from error
                except (requests.RequestException, errors.HTTPError, OSError) as error:
                    # A system without current authorities (an old image) still reads the default index.
                    if not trusts_certifi and _has(error, ssl.SSLCertVerificationError):
                        trusts_certifi = True
                        self._context.load_verify_locations(certifi.where())
                        continue
                    # urllib3 repeats a request until its headers are there; a body that breaks off is repeated here.
                    allowed = self._timeouts if _has(error, *_TIMED_OUT) else self._settings.retries
                    if response is None or breaks >= allowed or _expired():
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
            if (left := response.raw.length_remaining) is not None and left < _SHORT_REST:
                response.raw.drain_conn()
            received(response.raw.tell())
            response.close()

    def _failure(self, url: str, error: Exception, time_limit: float | None) -> IndexUnavailableError:
        """The error to raise; a host that will fail the next request in the same way is remembered as dead."""
        cause, lasting = _cause(error)
        if _expired():
            cause = f"its response was not complete within {time_limit:g} s"
        failure = IndexUnavailableError(f"{redact(url)} cannot be read: {cause}", hint=_CHECK_NETWORK)
        # A redirect may have led elsewhere: the host that failed is the one that the last request went to.
        request = getattr(error, "request", None)
        place = origin(request.url) if lasting and request is not None else origin(url)
        if lasting or _expired() or (_has(error, *_TIMED_OUT) and place not in self._alive):
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
    if (status := response.status_code) in (401, 403):
        return DeniedError(
            f"access to {redact(url)} is denied ({status}): {credentials.describe(origin(url))}",
            hint="put credentials into the index URL, ~/.netrc or keyring, or remove the index from your configuration",
            may_mean_absent=status == 403 and b"<Code>AccessDenied</Code>" in body,
        )
    cause = "the proxy asks for credentials" if status == 407 else f"the host answered {status} {response.reason}"
    return IndexUnavailableError(f"{redact(url)} cannot be read: {cause}", hint=_CHECK_NETWORK)


def _cause(error: Exception) -> tuple[str, bool]:
    """The failure in plain words, and whether the next request to the host would fail in the same way."""
    cause = next((words for kinds, words in _CAUSES if _has(error, *kinds)), None)
    if cause is None:
        return "the host stopped responding" if _has(error, *_TIMED_OUT) else "the connection was interrupted", False
    untrusted = (e.verify_message for e in _chain(error) if isinstance(e, ssl.SSLCertVerificationError))
    return cause.format(detail=next(untrusted, "handshake failed")), True


# In this order: a proxy error wraps the others, and NewConnectionError is a ConnectTimeoutError.
_CAUSES: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((errors.ProxyError, InvalidProxyURL), "the proxy cannot be reached or refuses the connection"),
    ((errors.NameResolutionError, socket.gaierror), "the host name cannot be resolved"),
    (
        (errors.SSLError, ssl.SSLError),
        "the host's certificate is not trusted ({detail}); to trust other authorities, set PIP_CERT or SSL_CERT_FILE",
    ),
    ((ConnectionRefusedError,), "the connection is refused"),
    ((errors.NewConnectionError,), "the host cannot be reached"),
    ((errors.ConnectTimeoutError,), "no connection within the time limit"),
)
