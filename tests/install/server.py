"""A file server on the loopback interface that can be made to stall."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote


class FileServer:
    """Serves one folder; a request for a name in ``stalled`` is held back until :meth:`release`.

    Attributes:
        requests: Paths that were asked for.
        reached: Set once a stalled file has been asked for.
    """

    def __init__(self, folder: Path, *, stalled: frozenset[str] = frozenset()) -> None:
        self.requests: list[str] = []
        self.reached = threading.Event()
        self._released = threading.Event()
        self._stalled = stalled
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, owner=self, directory=str(folder)))
        self._server.daemon_threads = True

    def url(self, filename: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{quote(filename)}"

    def note(self, path: str) -> None:
        self.requests.append(path)
        if path.lstrip("/") in self._stalled:
            self.reached.set()
            self._released.wait(60)

    def release(self) -> None:
        """Answer the requests that were held back."""
        self._released.set()

    def __enter__(self) -> FileServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, owner: FileServer, **kwargs: Any) -> None:
        self.owner = owner
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        self.owner.note(self.path)
        with contextlib.suppress(ConnectionError):  # who asked was killed
            super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass
