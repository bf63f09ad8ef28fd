"""Sending requests: retries, dead hosts, time limits, errors in plain words.

Imports an HTTP client, which costs start-up time: import it when something is to be sent.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any, TypeVar

import urllib3.exceptions as http
from urllib3.exceptions import NameResolutionError, NewConnectionError, ReadTimeoutError

from envsolve.errors import IndexUnavailableError
from envsolve.packages.connections import Answer, Connections, FailedAtError
from envsolve.packages.model import DeniedError
from envsolve.packages.settings import IndexSettings
from envsolve.packages.sockets import Deadline, Watch
from envsolve.packages.urls import Credentials, origin, redact

Result = TypeVar("Result")

_ABSENT = (404, 410)
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_TIMED_OUT = (ReadTimeoutError, TimeoutError)
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
        self._connections = Connections(settings, credentials, connections)
        self._watch = Watch()

    def close(self) -> None:
        """Drop the connections; requests under way are not tried again."""
        self._closing.set()
        self._connections.close()
        self._watch.close()

    def send(
        self,
        url: str,
        read: Callable[[Answer], Result],
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
        attempt, trusts_more = 0, False
        while True:
            if place in self._dead:
                raise self._dead[place]
            if self._closing.is_set():
                raise IndexUnavailableError(f"{redact(url)} was not read: the client is closed")
            started = time.monotonic()
            login = self._credentials.known(url)
            deadline = Deadline(self._watch, time_limit)
            try:
                with deadline, self._connections.get(url, headers or {}) as answer:
                    status = answer.status
                    self._alive.add(place)
                    if status < 400:
                        return _in_time(deadline, read, answer)
                    if status in _ABSENT:
                        return None
                    if status == 401 and self._credentials.ask_keyring(url, login):
                        continue
                    if status not in _BUSY or attempt >= self._settings.retries:
                        raise _refusal(url, answer, self._credentials)
                    wait = _wait(attempt, answer.headers.get("Retry-After"))
            except http.LocationValueError as error:
                raise IndexUnavailableError(
                    f"{redact(url)} cannot be read: it is not a usable address, or leads to none"
                ) from error
            except (FailedAtError, http.HTTPError, OSError) as error:
                if not trusts_more and _is_distrusted(error):
                    trusts_more = True
                    if self._connections.trust_more():
                        continue
                cause, lasting = _cause(error)
                if deadline.expired:
                    cause = f"its answer was not complete within {time_limit:g} s"
                failure = IndexUnavailableError(f"{redact(url)} cannot be read: {cause}", hint=_CHECK_NETWORK)
                slow = time.monotonic() - started > _QUICK
                if lasting and (attempt >= 1 or slow or _is_final(error)):
                    # A redirect may have led elsewhere: dead is the host that the failed request went to.
                    failed = error.url if isinstance(error, FailedAtError) else url
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


def _in_time(deadline: Deadline, read: Callable[[Answer], Result], answer: Answer) -> Result:
    """What ``read`` makes of an answer that was whole in time: a cut one may pass for whole, or for a broken one."""
    try:
        result = read(answer)
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


def _refusal(url: str, answer: Answer, credentials: Credentials) -> IndexUnavailableError:
    status, shown = answer.status, redact(url)
    if status in (401, 403):
        body = answer.body.read(2000, decode_content=True) or b""
        return DeniedError(
            f"{shown} is denied ({status}): {credentials.describe(origin(url))}",
            hint="put them into the index address, ~/.netrc or keyring, or remove the index from your configuration",
            may_mean_absent=status == 403 and b"<Code>AccessDenied</Code>" in body,
        )
    if status == 407:
        return IndexUnavailableError(f"{shown} cannot be read: the proxy asks for credentials", hint=_CHECK_NETWORK)
    return IndexUnavailableError(
        f"{shown} cannot be read: the host answered {status} {answer.body.reason}", hint=_CHECK_NETWORK
    )


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and what it wraps: urllib3 puts the socket's into args or ``reason``."""
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
    return unknown or any(isinstance(e, (ssl.SSLError, http.SSLError)) for e in _chain(error))


def _is_distrusted(error: Exception) -> bool:
    return any(isinstance(e, ssl.SSLCertVerificationError) for e in _chain(error))


def _cause(error: Exception) -> tuple[str, bool]:
    """What went wrong in plain words, and whether it will be so for the next request too."""
    chain = _chain(error)

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(e, kinds) for e in chain)

    if has(NameResolutionError, socket.gaierror):
        return "its host name is not known to the DNS", True
    if has(http.ProxyError):
        return "the proxy cannot be reached or refuses", True
    if has(http.SSLError, ssl.SSLError):
        detail = next(
            (e.verify_message for e in chain if isinstance(e, ssl.SSLCertVerificationError)), "handshake failed"
        )
        return f"its certificate is not trusted ({detail}); PIP_CERT or SSL_CERT_FILE names other authorities", True
    if has(ConnectionRefusedError):
        return "the connection is refused", True
    if has(NewConnectionError):  # which urllib3 derives from the next one
        return "the host cannot be reached", True
    if has(http.ConnectTimeoutError):
        return "no connection within the time limit", True
    if has(*_TIMED_OUT):
        return "it stopped answering", False
    return "the connection broke off", False
