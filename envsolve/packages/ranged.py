"""A file on a web server as a seekable Python file, read by HTTP ranges; made for ``zipfile`` on large wheels.

A wheel keeps its table of contents, and usually its METADATA, at the end. So the first request reads the tail; reading
backwards from there takes the gap and some more; reading forwards takes what is asked, and ever larger steps while the
reader goes on in sequence. A server that has no ranges is downloaded from, once, into a temporary file.
"""

from __future__ import annotations

import errno
import io
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from envsolve.errors import IndexUnavailableError
from envsolve.packages.model import MissingFileError
from envsolve.packages.urls import redact

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from requests import Response

    from envsolve.packages.http import Session


_KIB, _MIB = 1024, 1024 * 1024
_SMALLEST_TAIL, _LARGEST_TAIL = 128 * _KIB, 512 * _KIB
_LEAD = 64 * _KIB  # what is read in front of a gap before the tail: the .dist-info stands there
_SMALLEST_STEP, _LARGEST_STEP = 64 * _KIB, 8 * _MIB
_KEPT = 32 * _MIB  # bytes held in memory, besides the tail
_DOWNLOAD_LIMIT = 4096 * _MIB

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)$")
# A compressed answer would count other bytes than the file's.
_PLAIN = {"Accept-Encoding": "identity"}


class RangedFile(io.RawIOBase):
    """A read-only, seekable file over HTTP.

    Not for several threads at once (``zipfile`` locks around it).

    Attributes:
        size: Bytes.
        requests: How many requests were sent.
        transferred: Bytes received.
    """

    def __init__(
        self, url: str, session: Session, *, size: int | None = None, download_dir: Path | None = None
    ) -> None:
        """Read the tail of the file.

        Args:
            url: Address without credentials.
            session: Sends the requests.
            size: Bytes, where the index says so; helps to choose how much to read at once.
            download_dir: Where a server without ranges is downloaded to; the system's temporary folder when None.

        Raises:
            IndexUnavailableError: The file cannot be read, or is no longer there.
        """
        super().__init__()
        self._url = url
        self._session = session
        self._download_dir = download_dir
        self._local: BinaryIO | None = None
        self._pieces: list[tuple[int, bytes]] = []
        self._position = 0
        self._step = _SMALLEST_STEP
        self._last_stop = -1
        self.size = -1
        self.requests = 0
        self.transferred = 0
        tail = min(max((size or 0) // 128, _SMALLEST_TAIL), _LARGEST_TAIL)
        self._fetch(f"bytes={max(size - tail, 0)}-{size - 1}" if size else f"bytes=-{tail}")

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; sends nothing."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "a position before the start of the file")  # as a local file does
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer from the position on; returns the number of bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        """Everything from the position on."""
        return self.read(-1)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read exactly ``size`` bytes, fewer only at the end of the file; all that is left for -1 or None."""
        start = self._position
        stop = self.size if size is None or size < 0 else min(start + size, self.size)
        if start >= stop:
            return b""
        if self._local is not None:
            self._local.seek(start)
            data = self._local.read(stop - start)
        else:
            data = b"".join(self._take(start, stop))
        self._position = start + len(data)
        return data

    def close(self) -> None:
        """Forget what was read."""
        if self._local is not None:
            self._local.close()
        self._pieces.clear()
        super().close()

    def _take(self, start: int, stop: int) -> list[bytes | memoryview]:
        """The bytes of ``start:stop`` in parts, fetching what is not held."""
        parts: list[bytes | memoryview] = []
        while start < stop:
            held = self._held(start)
            if held is None:
                begin, end = self._wanted(start, stop)
                self._fetch(f"bytes={begin}-{end - 1}")
                self._last_stop = end
                if self._local is not None:  # a host that had ranges a moment ago
                    self._local.seek(start)
                    return [*parts, self._local.read(stop - start)]
                held = self._held(start) or self._broken("its host answers with another range than asked")
            part = held[: stop - start]
            parts.append(part)
            start += len(part)
        return parts

    def _held(self, start: int) -> memoryview | None:
        for at, data in self._pieces:
            if at <= start < at + len(data):
                return memoryview(data)[start - at :]
        return None

    def _wanted(self, start: int, stop: int) -> tuple[int, int]:
        """Which range to ask for when ``start`` is not held and the reader wants bytes until ``stop``."""
        self._step = min(self._step * 2, _LARGEST_STEP) if start == self._last_stop else _SMALLEST_STEP
        begin, end = start, min(max(stop, start + self._step), self.size)
        following = min((at for at, _ in self._pieces if at > start), default=self.size)
        if stop >= following:  # closing the gap in front of something held: reading backwards
            begin = max(start - _LEAD, max((at + len(d) for at, d in self._pieces if at <= start), default=0))
        return begin, min(end, following)

    def _fetch(self, wanted: str) -> None:
        piece = self._session.get(self._url, self._read_answer, {**_PLAIN, "Range": wanted})
        if piece is None:
            raise MissingFileError(f"{redact(self._url)} is listed by its index, and its host does not have it")
        at, data, total = piece
        self.requests += 1
        self.transferred += len(data)
        if self.size not in (-1, total):
            self._broken("it changed while it was read")
        self.size = total
        if self._local is None:
            if not data and total:
                self._broken("its host answered a range with nothing")
            self._pieces.append((at, data))
            while len(self._pieces) > 2 and sum(len(d) for _, d in self._pieces[1:]) > _KEPT:
                del self._pieces[1]  # the oldest but the tail

    def _read_answer(self, response: Response) -> tuple[int, bytes, int]:
        """``(first byte, bytes, size of the whole file)``; no bytes where the whole file went to a temporary one."""
        if response.status_code == 206:
            found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
            if found is None:
                self._broken("its host answers a range without saying which")
            first, last, total = (int(g) for g in found.groups())
            data = response.content
            if len(data) != last - first + 1:
                raise ConnectionResetError("the range is not whole")  # repeated by the session
            return first, data, total
        if self._local is not None:  # this is a second try
            self._local.close()
        self._local = tempfile.TemporaryFile(dir=self._download_dir)  # noqa: SIM115  closed by close()
        total = 0
        for chunk in response.iter_content(_MIB):
            total += len(chunk)
            if total > _DOWNLOAD_LIMIT:
                self._broken(f"its host has no ranges and it is larger than {_DOWNLOAD_LIMIT // _MIB} MiB")
            self._local.write(chunk)
        return 0, b"", total

    def _broken(self, cause: str) -> NoReturn:
        raise IndexUnavailableError(f"{redact(self._url)} cannot be read in parts: {cause}")
