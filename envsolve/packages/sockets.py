"""Connections that look each host name up once, and that end when their time is up.

Sixteen connections to one host would otherwise send sixteen pairs of DNS queries at the same moment, of which small
resolvers (routers, containers) lose some; the C library waits five seconds before it asks again.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from concurrent.futures import Future
from threading import Condition, Lock, Thread, local
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

_Address = tuple[Any, ...]  # as socket.getaddrinfo has it


_running = local()


class Deadline:
    """A block whose answers, read by the thread that entered it, must be complete in time.

    A socket's own time limit counts from byte to byte: a host that drips would hold its reader for ever. When the time
    is up the socket is shut down, which ends the read. Connections through a proxy are not watched.

    Attributes:
        until: When the time is up, as ``time.monotonic`` counts, once the block is entered.
        expired: Whether the time was up; what was read then is not whole, whatever it looks like.
    """

    def __init__(self, watch: Watch, seconds: float | None) -> None:
        """Prepare; None is a block without a limit."""
        self.until = 0.0
        self.expired = False
        self._watch = watch
        self._seconds = seconds
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Deadline:
        if self._seconds is not None:
            _running.deadline = self
            self.until = time.monotonic() + self._seconds
            self._watch.start(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._seconds is not None:
            self._watch.stop(self)
            _running.deadline = None

    def watch(self, connected: socket.socket) -> None:
        """Shut this socket down too when the time is up."""
        self._sockets.append(connected)
        if self.expired:
            self.expire()

    def expire(self) -> None:
        """The time is up."""
        self.expired = True
        for connected in self._sockets:
            with contextlib.suppress(OSError):
                # The plain socket's method: that of a TLS socket takes its state away from under the reading thread.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)


class Watch:
    """Tells deadlines when their time is up: one thread for all of them, since one for each costs more than it reads.

    The thread sleeps until the earliest of them, and is woken only by one that is earlier still.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._deadlines: set[Deadline] = set()
        self._wakes = math.inf
        self._thread: Thread | None = None
        self._closed = False

    def start(self, deadline: Deadline) -> None:
        """Watch one."""
        with self._changed:
            self._deadlines.add(deadline)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="index-watch", daemon=True)
                self._thread.start()
            elif deadline.until < self._wakes:
                self._changed.notify()

    def stop(self, deadline: Deadline) -> None:
        """Watch it no longer."""
        with self._changed:
            self._deadlines.discard(deadline)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for deadline in [one for one in self._deadlines if one.until <= now]:
                    self._deadlines.discard(deadline)
                    deadline.expire()
                self._wakes = min((one.until for one in self._deadlines), default=math.inf)
                self._changed.wait(None if self._wakes == math.inf else self._wakes - now)


def _watch(connected: socket.socket | None) -> None:
    deadline: Deadline | None = getattr(_running, "deadline", None)
    if deadline is not None and connected is not None:
        deadline.watch(connected)


class Resolver:
    """Addresses by host and port, for the life of the object. Thread-safe; failures are not remembered."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._answers: dict[tuple[str, int], Future[list[_Address]]] = {}

    def look_up(self, host: str, port: int) -> list[_Address]:
        """What ``socket.getaddrinfo`` says, asked once however many threads want it.

        Raises:
            OSError: As ``getaddrinfo``.
        """
        with self._lock:
            answer = self._answers.get((host, port))
            mine = answer is None
            if answer is None:
                answer = self._answers[host, port] = Future()
        if mine:
            try:
                answer.set_result(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
            except (OSError, UnicodeError) as error:
                with self._lock:
                    del self._answers[host, port]
                answer.set_exception(error if isinstance(error, OSError) else socket.gaierror(str(error)))
        return answer.result()


def use_resolver(manager: PoolManager, resolver: Resolver) -> None:
    """Make a pool manager's connections (those that go straight to a host, not through a proxy) use a resolver."""

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(self, resolver)

        def getresponse(self) -> Any:
            _watch(self.sock)
            return super().getresponse()

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(self, resolver)

        def getresponse(self) -> Any:
            _watch(self.sock)
            return super().getresponse()

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


def _connect(connection: HTTPConnection, resolver: Resolver) -> socket.socket:
    """A connected socket, or the exceptions that urllib3's own connections raise."""
    try:
        addresses = resolver.look_up(connection.host.strip("[]"), connection.port)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    failure: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        opened = socket.socket(family, kind, protocol)
        try:
            for option in connection.socket_options or ():
                opened.setsockopt(*option)
            if isinstance(connection.timeout, (int, float)):
                opened.settimeout(connection.timeout)
            opened.connect(address)
        except OSError as error:
            opened.close()
            failure = error
        else:
            return opened
    if isinstance(failure, TimeoutError):
        raise ConnectTimeoutError(connection, "no connection within the time limit") from failure
    raise NewConnectionError(connection, f"no connection: {failure}") from failure
