"""Sending requests: one pooled session for all threads, retries, dead hosts, certificates, errors in plain words.

The only module of this room that imports requests, which costs start-up time: import it when something is to be sent.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from threading import Event
from typing import Any, TypeVar
from urllib.parse import urlsplit

import certifi
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.exceptions import NameResolutionError, NewConnectionError, ReadTimeoutError

from envsolve import __version__
from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.index.address import origin, redact
from envsolve.index.credentials import Credentials
from envsolve.index.errors import DeniedError
from envsolve.index.settings import IndexSettings
from envsolve.index.sockets import Deadline, Resolver, use_resolver

Result = TypeVar("Result")

_ABSENT = (404, 410)
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_BAD_ADDRESS = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
    requests.exceptions.TooManyRedirects,
)
_TIMED_OUT = (requests.exceptions.ReadTimeout, ReadTimeoutError, TimeoutError)
_QUICK = 1.0  # seconds: a host that takes longer than this to be unreachable is not tried again
_LONGEST_REPEATED = 30.0  # seconds: a read that may take longer than this is not tried again when it timed out
_CHECK_NETWORK = "check the network, the proxy and the index address; --offline plans from what is cached"
_LONGEST_WAIT = 10.0  # seconds, whatever a Retry-After header asks for


class Transport:
    """Thread-safe. ``send`` is the only way out."""

    def __init__(self, settings: IndexSettings, credentials: Credentials, *, connections: int = 32) -> None:
        self._settings = settings
        self._credentials = credentials
        self._closing = Event()
        self._dead: dict[str, IndexUnavailableError] = {}
        self._alive: set[str] = set()
        self._session = _session(settings, connections)
        self._proxies = {"http": settings.proxy, "https": settings.proxy} if settings.proxy else None

    def close(self) -> None:
        """Drop the connections; requests under way are not tried again."""
        self._closing.set()
        self._session.close()

    def send(
        self,
        url: str,
        read: Callable[[requests.Response], Result],
        headers: Mapping[str, str] | None = None,
        *,
        time_limit: float | None = None,
    ) -> Result | None:
        """Send a GET and read the answer, both again where the connection breaks or the host is busy.

        Args:
            url: Address without credentials.
            read: Takes the answer (any status below 400) with its body unread; reads what it needs of it.
            headers: Request headers.
            time_limit: Seconds within which the answer must be complete; None for as long as bytes keep coming, which
                is for large files.

        Returns:
            What ``read`` returns, or None where the host says that there is no such thing (404, 410).

        Raises:
            DeniedError: 401 or 403, after netrc, the address's credentials and keyring.
            IndexUnavailableError: Anything else that is not an answer.
        """
        place = origin(url)
        attempt = 0
        while True:
            if place in self._dead:
                raise self._dead[place]
            if self._closing.is_set():
                raise IndexUnavailableError(f"{redact(url)} was not read: the client is closed")
            started = time.monotonic()
            login = self._credentials.known(url)
            deadline = Deadline(time_limit)
            try:
                with (
                    deadline,
                    self._session.get(
                        url,
                        headers=dict(headers or {}),
                        auth=login,
                        timeout=(self._settings.connect_timeout, self._settings.read_timeout),
                        proxies=self._proxies,
                        stream=True,
                    ) as response,
                ):
                    status = response.status_code
                    self._alive.add(place)
                    if status < 400:
                        return _in_time(deadline, read, response)
                    if status in _ABSENT:
                        return None
                    if status == 401 and self._credentials.ask_keyring(url, login):
                        continue
                    if status not in _BUSY or attempt >= self._settings.retries:
                        raise _refusal(url, response, self._credentials)
                    wait = _wait(attempt, response.headers.get("Retry-After"))
            except _BAD_ADDRESS as error:
                raise IndexUnavailableError(
                    f"{redact(url)} cannot be read: it is not a usable address, or leads to none"
                ) from error
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                cause, lasting = _cause(error)
                if deadline.expired:
                    cause = f"its answer was not complete within {time_limit:g} s"
                failure = IndexUnavailableError(f"{redact(url)} cannot be read: {cause}", hint=_CHECK_NETWORK)
                slow = time.monotonic() - started > _QUICK
                if lasting and (attempt >= 1 or slow or _is_final(error)):
                    # A redirect may have led elsewhere: dead is the host that the failed request went to.
                    failed = getattr(getattr(error, "request", None), "url", None) or url
                    self._dead.setdefault(origin(failed), failure)
                    raise failure from error
                if deadline.expired:
                    self._dead.setdefault(place, failure)
                    raise failure from error
                # A read that timed out cost many seconds already: once more, not three times.
                timed_out = any(isinstance(e, _TIMED_OUT) for e in _chain(error))
                patient = 1 if self._settings.read_timeout <= _LONGEST_REPEATED else 0
                if attempt >= (min(patient, self._settings.retries) if timed_out else self._settings.retries):
                    if timed_out and place not in self._alive:  # It would cost as much again for the next name.
                        self._dead.setdefault(place, failure)
                    raise failure from error
                wait = 0.1 if lasting else _wait(attempt, None)
            attempt += 1
            self._closing.wait(wait)


def _in_time(deadline: Deadline, read: Callable[[requests.Response], Result], response: requests.Response) -> Result:
    """What ``read`` makes of an answer that was whole in time: a cut one may pass for whole, or for a broken one."""
    try:
        result = read(response)
    except Exception as error:
        if deadline.expired:
            raise TimeoutError from error
        raise
    if deadline.expired:
        raise TimeoutError
    return result


def _wait(attempt: int, retry_after: str | None) -> float:
    if retry_after and retry_after.isdigit():
        return min(float(retry_after), _LONGEST_WAIT)
    return min(0.25 * 2.0**attempt, _LONGEST_WAIT) * random.uniform(0.75, 1.25)


def _refusal(url: str, response: requests.Response, credentials: Credentials) -> IndexUnavailableError:
    status, shown = response.status_code, redact(url)
    if status in (401, 403):
        body = response.raw.read(2000, decode_content=True) or b""
        return DeniedError(
            f"{shown} is denied ({status}): {credentials.describe(origin(url))}",
            hint="put them into the index address, ~/.netrc or keyring, or remove the index from your configuration",
            may_mean_absent=status == 403 and b"<Code>AccessDenied</Code>" in body,
        )
    if status == 407:
        return IndexUnavailableError(f"{shown} cannot be read: the proxy asks for credentials", hint=_CHECK_NETWORK)
    return IndexUnavailableError(
        f"{shown} cannot be read: the host answered {status} {response.reason}", hint=_CHECK_NETWORK
    )


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and what it wraps: requests puts urllib3's, and that the socket's, into args or ``reason``."""
    found: list[BaseException] = []
    queue: list[Any] = [error]
    while queue:
        item = queue.pop(0)
        if isinstance(item, BaseException) and item not in found:
            found.append(item)
            queue += [*item.args, getattr(item, "reason", None), item.__cause__, item.__context__]
    return found


def _is_final(error: Exception) -> bool:
    """Whether a lasting failure is not worth the one quick retry: a certificate, or a name that the DNS denies."""
    unknown = any(isinstance(e, socket.gaierror) and e.errno == socket.EAI_NONAME for e in _chain(error))
    return unknown or isinstance(error, requests.exceptions.SSLError)


def _cause(error: Exception) -> tuple[str, bool]:
    """What went wrong in plain words, and whether it will be so for the next request too."""
    chain = _chain(error)

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(e, kinds) for e in chain)

    if has(NameResolutionError, socket.gaierror):
        return "its host name is not known to the DNS", True
    if has(requests.exceptions.ProxyError):
        return "the proxy cannot be reached or refuses", True
    if has(requests.exceptions.SSLError, ssl.SSLError):
        detail = next(
            (e.verify_message for e in chain if isinstance(e, ssl.SSLCertVerificationError)), "handshake failed"
        )
        return f"its certificate is not trusted ({detail}); PIP_CERT or SSL_CERT_FILE names other authorities", True
    if has(requests.exceptions.ConnectTimeout):
        return "no connection within the time limit", True
    if has(ConnectionRefusedError):
        return "the connection is refused", True
    if has(NewConnectionError):
        return "the host cannot be reached", True
    if has(*_TIMED_OUT):
        return "it stopped answering", False
    return "the connection broke off", False


class _Adapter(HTTPAdapter):
    """Shares one TLS context among all connections: loading the authorities for each costs tens of milliseconds."""

    def __init__(self, context: ssl.SSLContext, resolver: Resolver, connections: int) -> None:
        self._context = context
        self._resolver = resolver
        super().__init__(pool_connections=32, pool_maxsize=connections)

    def init_poolmanager(self, *args: Any, **keywords: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **keywords)
        use_resolver(self.poolmanager, self._resolver)

    def proxy_manager_for(self, proxy: str, **keywords: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._context, **keywords)

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        pass  # the context does


def _session(settings: IndexSettings, connections: int) -> requests.Session:
    session = requests.Session()
    session.headers["User-Agent"] = f"envsolve/{__version__}"
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    context, resolver = _tls_context(settings), Resolver()
    session.mount("https://", _Adapter(context, resolver, connections))
    session.mount("http://", _Adapter(context, resolver, connections))
    if settings.trusted_hosts:
        unchecked = ssl.create_default_context()
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        for host in settings.trusted_hosts:
            named = urlsplit(host).netloc if "://" in host else host
            session.mount(f"https://{named}/", _Adapter(unchecked, resolver, connections))
            if ":" not in named:
                session.mount(f"https://{named}:", _Adapter(unchecked, resolver, connections))
    return session


def _tls_context(settings: IndexSettings) -> ssl.SSLContext:
    bundle, client = settings.ca_bundle, settings.client_cert
    try:
        return _load_context(bundle, client)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the certificates in {bundle or client} cannot be read: {error}",
            hint=f"set in {settings.sources.get('ca_bundle' if bundle else 'client_cert', 'the index settings')}",
        ) from None


@lru_cache(maxsize=4)
def _load_context(bundle: str | None, client: str | None) -> ssl.SSLContext:
    if bundle is None:
        context = ssl.create_default_context()
        context.load_verify_locations(certifi.where())
    else:
        folder = Path(bundle).is_dir()
        context = ssl.create_default_context(cafile=None if folder else bundle, capath=bundle if folder else None)
    if client is not None:
        context.load_cert_chain(client)
    return context
