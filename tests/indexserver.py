"""Package indexes on the loopback interface, true enough for real pip and real uv, with faults on request.

with IndexServer() as server:
    main = server.index()                                   # /simple/, JSON or HTML as the client asks
    main.wheel("demo", "1.0", requires=["other>=1"])
    torch = server.index("/whl/cu126/", style="pytorch")    # HTML as download.pytorch.org writes it
    torch.wheel("torch", "2.8.0+cu126", tags="cp312-cp312-manylinux_2_28_x86_64")
    server.fault("/simple/demo/", status=503, times=1)
    held = server.hold("/simple/other/")                    # held.reached tells of a request, held.release() answers it
    ...
    assert server.asked("/simple/demo/") == 2
"""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from urllib.parse import unquote

from tests.indexcontent import Index, Style

__all__ = ["S3_DENIAL", "Fault", "Hold", "Index", "IndexServer", "Request", "Style"]

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
S3_DENIAL = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'


class Hold:
    """Requests that are answered only once they are released.

    Attributes:
        reached: Set once such a request has come.
    """

    def __init__(self) -> None:
        self.reached = Event()
        self._released = Event()

    def release(self) -> None:
        self._released.set()

    def wait(self) -> None:
        self.reached.set()
        self._released.wait(60)


@dataclass
class Fault:
    """What happens instead of an answer to paths that start with ``prefix``, ``times`` times (-1: always)."""

    prefix: str
    status: int | None = None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    truncate: bool = False
    reset: bool = False
    times: int = -1
    hold: Hold | None = None
    drip: float | None = None


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]


def free_port() -> int:
    """A port of the loopback on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class IndexServer:
    """Serves until the ``with`` block ends."""

    def __init__(self) -> None:
        self.indexes: list[Index] = []
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.lock = Lock()
        self.busy = self.most_busy = 0  # requests at the same moment: now, and at most
        owner = self

        class Handler(_Handler):
            server_state = owner

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # clients that hang up are part of the tests

        self._http = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._http.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> IndexServer:
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fault in self.faults:
            if fault.hold is not None:
                fault.hold.release()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self.port}"

    def index(
        self,
        path: str = "/simple/",
        *,
        style: Style = "both",
        metadata: bool = True,
        ranges: bool = True,
        hashes: bool = True,
        etag: bool = True,
        cache_control: str | None = "max-age=600, public",
        auth: tuple[str, str] | None = None,
    ) -> Index:
        made = Index(self, path, style, metadata, ranges, hashes, etag, cache_control, auth)
        self.indexes.append(made)
        return made

    def fault(
        self,
        prefix: str,
        *,
        status: int | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
        truncate: bool = False,
        reset: bool = False,
        times: int = -1,
        drip: float | None = None,
    ) -> None:
        """Spoil answers; ``drip`` sends the head and then the body, byte by byte with that many seconds between."""
        self.faults.append(Fault(prefix, status, body, headers or {}, delay, truncate, reset, times, drip=drip))

    def hold(self, prefix: str) -> Hold:
        """Keep requests for paths that start so waiting."""
        hold = Hold()
        self.faults.append(Fault(prefix, hold=hold))
        return hold

    def asked(self, prefix: str) -> int:
        """How many requests came for paths that start so."""
        return sum(r.path.startswith(prefix) for r in self.requests)

    def take_fault(self, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if path.startswith(fault.prefix) and fault.times != 0:
                    fault.times -= 1
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: IndexServer
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        state = self.server_state
        with state.lock:
            state.requests.append(Request(self.command, self.path, dict(self.headers)))
            state.busy += 1
            state.most_busy = max(state.most_busy, state.busy)
        try:
            self._respond(state)
        finally:
            with state.lock:
                state.busy -= 1

    def _respond(self, state: IndexServer) -> None:
        fault = state.take_fault(self.path)
        if fault is not None:
            time.sleep(fault.delay)
            if fault.hold is not None:
                fault.hold.wait()
            if fault.reset:
                # Linger zero: the peer sees a reset, not an end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                return
            if fault.drip is not None:
                self._drip(fault)
                return
            if fault.status is not None:
                self._answer(fault.status, fault.body, fault.headers)
                return
        path = unquote(self.path)
        # The longest path first: indexes may lie inside one another.
        for index in sorted(state.indexes, key=lambda i: -len(i.path)):
            if path.startswith(index.path):
                self._serve(index, path[len(index.path) :], truncate=fault is not None and fault.truncate)
                return
        self._answer(404, b"no such index")

    def _drip(self, fault: Fault) -> None:
        self.close_connection = True
        head = b"".join(f"{name}: {value}\r\n".encode() for name, value in fault.headers.items())
        for byte in b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + fault.body:
            self.wfile.write(bytes([byte]))
            time.sleep(fault.drip or 0)

    do_HEAD = do_GET  # noqa: N815

    def _serve(self, index: Index, rest: str, *, truncate: bool) -> None:
        if index.auth is not None:
            expected = "Basic " + base64.b64encode(":".join(index.auth).encode()).decode()
            if self.headers.get("Authorization") != expected:
                self._answer(401, b"who are you?", {"WWW-Authenticate": 'Basic realm="packages"'})
                return
        if rest.startswith("-files/"):
            self._file(index, rest.removeprefix("-files/"), truncate=truncate)
        elif rest.rstrip("/") in index.projects:
            self._page(index, rest.rstrip("/"), truncate=truncate)
        else:
            self._absent(index)

    def _absent(self, index: Index) -> None:
        if index.style == "pytorch":
            self._answer(403, S3_DENIAL, {"Content-Type": "application/xml"})
        else:
            self._answer(404, b"not found")

    def _page(self, index: Index, name: str, *, truncate: bool) -> None:
        as_json = index.style == "json" or (index.style == "both" and JSON_TYPE in self.headers.get("Accept", ""))
        body = index.json_page(name) if as_json else index.html_page(name)
        headers = {"Content-Type": JSON_TYPE if as_json else "text/html; charset=utf-8"}
        if index.cache_control is not None:
            headers["Cache-Control"] = index.cache_control
        if index.etag:
            headers["ETag"] = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            if self.headers.get("If-None-Match") == headers["ETag"]:
                self._answer(304, b"", headers)
                return
        self._answer(200, body, headers, truncate=truncate)

    def _file(self, index: Index, filename: str, *, truncate: bool) -> None:
        entries = (entry for project in index.projects.values() for entry in project)
        for entry in entries:
            if entry.filename == filename:
                self._content(index, entry.content, truncate=truncate)
                return
            if f"{entry.filename}.metadata" == filename and index.metadata and entry.metadata is not None:
                self._answer(200, entry.metadata, truncate=truncate)
                return
        self._absent(index)

    def _content(self, index: Index, content: bytes, *, truncate: bool) -> None:
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not index.ranges or asked is None:
            self._answer(200, content, {"Accept-Ranges": "bytes"} if index.ranges else {}, truncate=truncate)
            return
        total = len(content)
        first, last = asked.groups()
        start = int(first) if first else max(total - int(last), 0)
        stop = min(int(last) + 1, total) if first and last else total
        if start >= stop:
            self._answer(416, b"", {"Content-Range": f"bytes */{total}"})
            return
        headers = {"Content-Range": f"bytes {start}-{stop - 1}/{total}", "Accept-Ranges": "bytes"}
        self._answer(206, content[start:stop], headers, truncate=truncate)

    def _answer(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, *, truncate: bool = False
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD" or status == 304:
            return
        self.wfile.write(body[: len(body) // 2] if truncate else body)
        if truncate:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass
