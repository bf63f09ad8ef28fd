"""The transport adapter of requests: which failures are repeated, the time limit of a response, and certificates."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Event, local
from typing import Any, cast

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Retry
from urllib3 import exceptions as errors
from urllib3.connection import HTTPConnection, HTTPSConnection

from envsolve.errors import UsageError

# 408 and 425 invite another try (RFC 9110, RFC 8470); 429 and 503 may carry a Retry-After.
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_LONGEST_WAIT = 10.0  # seconds, whatever a Retry-After header asks for


def chain(error: BaseException) -> list[BaseException]:
    """The exception and those it wraps: requests and urllib3 put the socket's into args or ``reason``."""
    found: list[BaseException] = []
    queue: list[Any] = [error]
    while queue:
        item = queue.pop(0)
        if isinstance(item, BaseException) and item not in found:
            found.append(item)
            queue += [*item.args, getattr(item, "reason", None), item.__cause__, item.__context__]
    return found


def has(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether an exception, or one that it wraps, is of these kinds."""
    return any(isinstance(e, kinds) for e in chain(error))


class BoundedRetry(Retry):
    """Counts as urllib3 does, but does not repeat what will fail again, and its waits are short and can be ended."""

    closing: Event
    timeouts: int  # how often a read that timed out is repeated

    @classmethod
    def of(cls, retries: int, timeouts: int, closing: Event) -> BoundedRetry:
        """As many retries as may be; of reads that timed out, ``timeouts``; none once ``closing`` is set."""
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
        """One retry less, or MaxRetryError."""
        if error is not None and not self._may_pass(error):
            raise errors.MaxRetryError(cast("HTTPConnectionPool", more.get("_pool")), url, error) from error
        return super().increment(method, url, response, error, *rest, **more)

    def _may_pass(self, error: Exception) -> bool:
        if self.closing.is_set() or expired():
            return False
        if isinstance(error, errors.ReadTimeoutError):
            return sum(isinstance(past.error, errors.ReadTimeoutError) for past in self.history) < self.timeouts
        if any(isinstance(e, socket.gaierror) and e.errno == socket.EAI_NONAME for e in chain(error)):
            return False
        # urllib3 derives NewConnectionError, which comes at once, from ConnectTimeoutError, which takes its time.
        return isinstance(error, errors.NewConnectionError) or not isinstance(error, errors.ConnectTimeoutError)

    def get_retry_after(self, response: Any) -> float | None:
        """Seconds that the host asks to wait, cut to a bearable length."""
        try:
            seconds = super().get_retry_after(response)
        except errors.InvalidHeader:
            return None
        return None if seconds is None else min(seconds, _LONGEST_WAIT)

    def sleep(self, response: Any = None) -> None:
        """Wait, unless the session is closed."""
        wait = self.get_retry_after(response) if response is not None else None
        self.closing.wait(self.get_backoff_time() if wait is None else wait)


# A socket's time limit counts from byte to byte, so a host that drips would hold its reader for ever. The limit of a
# whole response is therefore checked at each read of the socket, in the thread that entered the block.

_running = local()


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Make every response that is read in the block complete within some seconds."""
    _running.until = None if seconds is None else time.monotonic() + seconds
    try:
        yield
    finally:
        _running.until = None


def expired() -> bool:
    """Whether the time of the block is up."""
    until: float | None = getattr(_running, "until", None)
    return until is not None and time.monotonic() >= until


class _Timed(io.RawIOBase):
    """The reading end of a socket until a deadline."""

    def __init__(self, raw: io.RawIOBase, connected: socket.socket, until: float) -> None:
        self._raw = raw
        self._socket = connected
        self._until = until
        self._longest = connected.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the response is not complete in time")
        self._socket.settimeout(left if self._longest is None else min(left, self._longest))
        return cast("int | None", self._raw.readinto(buffer))

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        until = getattr(_running, "until", None)
        if until is not None:
            self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, until))


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_POOLS = {"http": _Pool, "https": _SecurePool}


class Adapter(HTTPAdapter):
    """Connections with one TLS context: requests would read its authorities anew for every connection."""

    def __init__(self, context: ssl.SSLContext, retry: Retry, connections: int) -> None:
        self._context = context
        super().__init__(pool_connections=32, pool_maxsize=connections, max_retries=retry)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """As HTTPAdapter."""
        super().init_poolmanager(*args, ssl_context=self._context, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """As HTTPAdapter."""
        socks = proxy.lower().startswith("socks")
        options |= {"ssl_context": self._context} | ({} if socks else {"proxy_ssl_context": self._context})
        manager = super().proxy_manager_for(proxy, **options)
        if not socks:
            manager.pool_classes_by_scheme = _POOLS
        return manager

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        """As HTTPAdapter, without settings of its own for certificates."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Do nothing: the context says what is verified."""


@lru_cache(maxsize=4)
def tls_context(bundle: str | None, client: str | None, source: str) -> ssl.SSLContext:
    """One context for all connections: loading the authorities takes tens of milliseconds."""
    try:
        if bundle is None:
            context = ssl.create_default_context()
            if not context.cert_store_stats()["x509_ca"]:
                add_certifi(context)
        else:
            directory, file = (bundle, None) if Path(bundle).is_dir() else (None, bundle)
            context = ssl.create_default_context(cafile=file, capath=directory)
        if client is not None:
            context.load_cert_chain(client)
    except (OSError, ssl.SSLError) as error:
        message = f"the certificates in {bundle or client} cannot be read: {error}"
        raise UsageError(message, hint=f"set in {source}") from None
    return context


def add_certifi(context: ssl.SSLContext) -> None:
    """Trust certifi's authorities also."""
    import certifi

    context.load_verify_locations(certifi.where())


def unchecked_context() -> ssl.SSLContext:
    """A context that accepts every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
