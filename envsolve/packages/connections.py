"""One GET over a pooled connection, along its redirects: proxies, certificates, and who is told which credentials.

Urllib3 itself rather than requests above it: what requests does for each request besides takes five times as long as
the request, and a plan sends hundreds. It is still asked which of the environment's proxies is for an address.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import getproxies

from msgspec import Struct
from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout, make_headers
from urllib3.exceptions import LocationValueError

from envsolve import __version__
from envsolve.errors import UsageError
from envsolve.packages.settings import IndexSettings
from envsolve.packages.sockets import Resolver, use_resolver
from envsolve.packages.urls import Credentials, origin

_MOST_REDIRECTS = 30
_WORTH_READING = 64 * 1024  # bytes: a shorter rest of an answer is read, so that its connection can be used again
_ALWAYS = {**make_headers(accept_encoding=True, user_agent=f"envsolve/{__version__}"), "Accept": "*/*"}


class Answer(Struct, frozen=True):
    """What a host answered, its body not yet read.

    Attributes:
        url: Where it was in the end.
        body: The answer as urllib3 has it: its status, headers, and the body to read.
    """

    url: str
    body: BaseHTTPResponse

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.body.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields, found in any spelling."""
        return self.body.headers

    def read(self) -> bytes:
        """The whole body, decompressed."""
        return self.body.read(decode_content=True)


class FailedAtError(Exception):
    """A request failed, which its ``__cause__`` tells of.

    Attributes:
        url: The one that failed: where a redirect led, it is not the one that was asked for.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class Connections:
    """Thread-safe. Keeps connections to each host, and goes through proxies, as the settings have it."""

    def __init__(self, settings: IndexSettings, credentials: Credentials, size: int) -> None:
        """Prepare; sends nothing.

        Args:
            settings: Certificates, proxy, time limits.
            credentials: Who to be where.
            size: Connections to a host that are kept.

        Raises:
            UsageError: The certificates cannot be read.
        """
        self._settings = settings
        self._credentials = credentials
        self._size = size
        self._timeout = Timeout(connect=settings.connect_timeout, read=settings.read_timeout)
        self._resolver = Resolver()
        self._checked = _tls_context(settings)
        self._lock = Lock()
        self._managers: dict[tuple[str | None, bool], PoolManager] = {}
        self._proxies = getproxies()

    def close(self) -> None:
        """Drop them."""
        for manager in list(self._managers.values()):
            manager.clear()

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[Answer]:
        """Send a GET, and follow where it leads.

        Raises:
            FailedAtError: No answer came.
            LocationValueError: An address, this or one that it leads to, is none that can be used.
        """
        answer = self._follow(url, headers)
        try:
            yield answer
        finally:
            _let_go(answer.body)

    def trust_more(self) -> bool:
        """Trust certifi's authorities besides the system's, which may be old; False where others are named instead."""
        if self._settings.ca_bundle is not None:
            return False
        _add_certifi(self._checked)
        return True

    def _follow(self, url: str, headers: Mapping[str, str]) -> Answer:
        login = self._credentials.known(url) or self._credentials.in_netrc(url)
        for _ in range(_MOST_REDIRECTS):
            sent = {**_ALWAYS, **headers, **({"Authorization": _basic(*login)} if login else {})}
            try:
                body = self._manager(url).urlopen(
                    "GET",
                    url,
                    redirect=False,
                    retries=False,
                    headers=sent,
                    timeout=self._timeout,
                    preload_content=False,
                    decode_content=False,
                )
            except LocationValueError:
                raise
            except Exception as error:
                raise FailedAtError(url) from error
            target = body.get_redirect_location()
            if not target:
                return Answer(url, body)
            _let_go(body)
            following = urldefrag(urljoin(url, target)).url
            _check(following)
            login = (login if _is_same_host(url, following) else None) or self._credentials.in_netrc(following)
            url = following
        raise LocationValueError(f"more than {_MOST_REDIRECTS} redirects")

    def _manager(self, url: str) -> PoolManager:
        key = self._proxy(url), _is_trusted(url, self._settings.trusted_hosts)
        found = self._managers.get(key)
        if found is None:
            with self._lock:
                found = self._managers[key] = self._managers.get(key) or self._new_manager(*key)
        return found

    def _new_manager(self, proxy: str | None, trusted: bool) -> PoolManager:
        context = _unchecked_context() if trusted else self._checked
        if proxy is None:
            manager = PoolManager(32, maxsize=self._size, ssl_context=context)
            use_resolver(manager, self._resolver)
            return manager
        parts = urlsplit(proxy)
        user, password = (unquote(part or "") for part in (parts.username, parts.password))
        if parts.scheme.startswith("socks"):
            try:
                from urllib3.contrib.socks import SOCKSProxyManager  # needs PySocks
            except ImportError:
                raise LocationValueError("a SOCKS proxy takes the package PySocks") from None
            return SOCKSProxyManager(proxy, user or None, password or None, 32, maxsize=self._size, ssl_context=context)
        told = {"Proxy-Authorization": _basic(user, password)} if user else {}
        return ProxyManager(
            proxy, 32, proxy_headers=told, maxsize=self._size, ssl_context=context, proxy_ssl_context=context
        )

    def _proxy(self, url: str) -> str | None:
        proxy = self._settings.proxy
        if proxy is None and self._proxies:
            from requests.utils import get_environ_proxies, select_proxy  # knows all forms of NO_PROXY

            proxy = select_proxy(url, get_environ_proxies(url))
        return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _let_go(body: BaseHTTPResponse) -> None:
    """Give the connection back; where more is left of the answer than is worth reading, close it."""
    left = getattr(body, "length_remaining", None)
    try:
        if left is not None and left < _WORTH_READING:
            body.drain_conn()
    finally:
        body.close()


def _check(url: str) -> None:
    """Hold the address that a redirect gives to what can be asked.

    Raises:
        LocationValueError: It is none.
    """
    try:
        origin(url)
    except UsageError:
        raise LocationValueError("a redirect leads to an address that cannot be read") from None


def _is_same_host(url: str, following: str) -> bool:
    """Whether credentials may go along: to the same origin, or from http to https on their usual ports."""
    before, after = origin(url), origin(following)
    secured = before.removesuffix(":80").replace("http://", "https://", 1) + ":443"
    return after == before or (before.startswith("http://") and before.endswith(":80") and after == secured)


def _is_trusted(url: str, hosts: tuple[str, ...]) -> bool:
    """Whether a host's certificate is not to be checked: ``host`` names it on every port, ``host:port`` on one."""
    if not hosts:
        return False
    place = urlsplit(url).netloc.rpartition("@")[2].lower()
    named = {(urlsplit(host).netloc if "://" in host else host).lower() for host in hosts}
    return place in named or place.rpartition(":")[0] in named


def _basic(user: str, password: str) -> str:
    return make_headers(basic_auth=f"{user}:{password}")["authorization"]


def _unchecked_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


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
    """One context for all connections: loading the authorities takes tens of milliseconds."""
    if bundle is None:
        context = ssl.create_default_context()
        if not context.cert_store_stats()["x509_ca"]:
            _add_certifi(context)
    else:
        folder = Path(bundle).is_dir()
        context = ssl.create_default_context(cafile=None if folder else bundle, capath=bundle if folder else None)
    if client is not None:
        context.load_cert_chain(client)
    return context


def _add_certifi(context: ssl.SSLContext) -> None:
    import certifi

    context.load_verify_locations(certifi.where())
