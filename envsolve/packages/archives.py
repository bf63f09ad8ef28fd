"""Archives, also those on a web server, and the metadata inside them.

A remote wheel is read by HTTP ranges. It keeps its table of contents, and usually its METADATA, at the end. So the
first request reads the tail; reading backwards from there takes the gap and some more; reading forwards takes what is
needed, and ever larger steps while the reader goes on in sequence. If a server has no ranges, the file is downloaded
once.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, NoReturn, cast

from msgspec import Struct
from packaging.utils import canonicalize_name

from envsolve.errors import IndexUnavailableError
from envsolve.packages.model import CoreMetadata, MissingFileError, parse_metadata
from envsolve.packages.sdists import WANTED, source_metadata
from envsolve.packages.urls import redact
from envsolve.system.limits import METADATA_BYTES, RANGE_BYTES, SDIST_BYTES, Counted, joined

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
# An sdist whose build only downloads a wheel has 1 to 200 KiB: that of tensorrt-llm has a text of licences.
_SMALL_SDIST = _MIB
_TIME = 60.0  # seconds for each range, besides those that its bytes bring

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
            size: Bytes, if the index gives it; helps to choose how much to read at once.
            download_dir: Where a server without ranges is downloaded to; the system's temporary directory when None.

        Raises:
            IndexUnavailableError: The file cannot be read, or no longer exists.
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
        """Drop the cached bytes."""
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
                held = self._held(start) or self._broken("its host sent a different range than requested")
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
        """The range to request if ``start`` is not cached and the reader wants bytes until ``stop``."""
        self._step = min(self._step * 2, _LARGEST_STEP) if start == self._last_stop else _SMALLEST_STEP
        begin, end = start, min(max(stop, start + self._step), self.size)
        following = min((at for at, _ in self._pieces if at > start), default=self.size)
        if stop >= following:  # closing the gap in front of something held: reading backwards
            begin = max(start - _LEAD, max((at + len(d) for at, d in self._pieces if at <= start), default=0))
        return begin, min(end, following)

    def _fetch(self, wanted: str) -> None:
        piece = self._session.get(self._url, self._read_answer, {**_PLAIN, "Range": wanted}, time_limit=_TIME)
        if piece is None:
            raise MissingFileError(f"{redact(self._url)} is listed on its index, but the host does not have the file")
        at, data, total = piece
        self.requests += 1
        self.transferred += len(data)
        if self.size not in (-1, total):
            self._broken("the file changed while it was read")
        self.size = total
        if self._local is None:
            if not data and total:
                self._broken("its host sent nothing for a range")
            self._pieces.append((at, data))
            while len(self._pieces) > 2 and sum(len(d) for _, d in self._pieces[1:]) > _KEPT:
                del self._pieces[1]  # the oldest but the tail

    def _read_answer(self, response: Response) -> tuple[int, bytes, int]:
        """``(first byte, bytes, size of the whole file)``; no bytes if all was written to a temporary file."""
        if response.status_code == 206:
            found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
            if found is None:
                self._broken("its host does not say which range it sent")
            first, last, total = (int(g) for g in found.groups())
            if not 0 <= last - first < RANGE_BYTES:
                self._broken(f"its host sent more than {RANGE_BYTES // _MIB} MiB at once")
            data = joined(response.iter_content(_MIB), last - first + 1, "the range")
            if len(data) != last - first + 1:
                raise ConnectionResetError("the range is incomplete")  # repeated by the session
            return first, data, total
        if self._local is not None:  # this is a second try
            self._local.close()
        import tempfile  # random, hashlib: most hosts have ranges

        self._local = tempfile.TemporaryFile(dir=self._download_dir)  # noqa: SIM115  closed by close()
        total = 0
        for chunk in response.iter_content(_MIB):
            total += len(chunk)
            if total > _DOWNLOAD_LIMIT:
                self._broken(f"its host does not support ranges, and it is larger than {_DOWNLOAD_LIMIT // _MIB} MiB")
            self._local.write(chunk)
        return 0, b"", total

    def _broken(self, cause: str) -> NoReturn:
        raise IndexUnavailableError(f"{redact(self._url)} cannot be read in parts: {cause}")


# Finding members in a zip archive by the bytes of its table of contents.
#
# ``zipfile`` makes an object of every member: 300 ms for the twenty thousand of a large wheel, where this takes 2. What
# is odd about an archive (a comment, zip64, bytes in front) is left to ``zipfile``.
#
# Layout: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3.7, 4.3.12, 4.3.16.


_END, _END_MAGIC = struct.Struct("<4s4H2LH"), b"PK\x05\x06"
_ENTRY, _ENTRY_MAGIC = struct.Struct("<4s6H3L5H2L"), b"PK\x01\x02"
_LOCAL, _LOCAL_MAGIC = struct.Struct("<4s5H3L2H"), b"PK\x03\x04"
_ABOVE = 0xFFFFFFFF  # what stands in place of a number that only zip64 can hold


class Member(Struct, frozen=True):
    """One file in an archive.

    Attributes:
        name: With its directories.
        size: Bytes, uncompressed.
    """

    name: str
    size: int
    crc: int
    method: int
    stored: int
    offset: int

    def read(self, file: IO[bytes]) -> bytes:
        """Its bytes.

        Raises:
            zipfile.BadZipFile, zlib.error, NotImplementedError: It is damaged, or compressed in an unusual way.
        """
        file.seek(self.offset)
        local = file.read(_LOCAL.size)
        if len(local) < _LOCAL.size or not local.startswith(_LOCAL_MAGIC):
            raise zipfile.BadZipFile(f"{self.name} is not at the position in the archive's table of contents")
        *_, name, extra = _LOCAL.unpack(local)
        file.seek(self.offset + _LOCAL.size + name + extra)
        data = file.read(self.stored)
        if self.method == zipfile.ZIP_DEFLATED:
            data = zlib.decompressobj(-15).decompress(data, self.size + 1)
        elif self.method != zipfile.ZIP_STORED:
            raise NotImplementedError(f"{self.name} is compressed by method {self.method}")
        if len(data) != self.size or zlib.crc32(data) != self.crc:
            raise zipfile.BadZipFile(f"{self.name} is damaged")
        return data


def members_ending(file: IO[bytes], suffix: str) -> list[Member]:
    """The members whose names end so, in the order of the table of contents.

    Raises:
        zipfile.BadZipFile: It is not an archive.
    """
    directory = _directory(file)
    found = None if directory is None else list(_found(directory, suffix.encode()))
    if found is None or any(_ABOVE in (member.size, member.stored, member.offset) for member in found):
        with zipfile.ZipFile(file) as archive:
            return [
                Member(i.filename, i.file_size, i.CRC, i.compress_type, i.compress_size, i.header_offset)
                for i in archive.infolist()
                if i.filename.endswith(suffix)
            ]
    return found


def _directory(file: IO[bytes]) -> bytes | None:
    """The table of contents; None if it cannot be read from the tail alone."""
    size = file.seek(0, os.SEEK_END)
    if size < _END.size:
        return None
    file.seek(size - _END.size)
    magic, disk, first_disk, here, total, length, start, comment = _END.unpack(file.read(_END.size))
    if magic != _END_MAGIC or comment or disk or first_disk or here != total or start + length != size - _END.size:
        return None
    file.seek(start)
    directory = file.read(length)
    return directory if directory.startswith(_ENTRY_MAGIC) else None


def _found(directory: bytes, suffix: bytes) -> Iterator[Member]:
    end = 0
    while (place := directory.find(suffix, end)) >= 0:
        end = place + len(suffix)
        start = directory.rfind(_ENTRY_MAGIC, 0, place)
        if start < 0 or start + _ENTRY.size > place:
            continue
        entry = _ENTRY.unpack_from(directory, start)
        method, crc, stored, size, name, offset = (entry[i] for i in (4, 7, 8, 9, 10, 16))
        if start + _ENTRY.size + name == end:  # else it is amid a longer name, or in what comes behind one
            text = directory[start + _ENTRY.size : end].decode("utf-8", "replace")
            yield Member(text, size, crc, method, stored, offset)


# Finding the metadata inside a distribution file: METADATA of a wheel, PKG-INFO of a source archive.


# zipfile raises RuntimeError for a member with a password, and NotImplementedError, which is one, for odd versions.
ARCHIVE_ERRORS = (ValueError, zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError)


def wheel_metadata(file: IO[bytes], filename: str) -> CoreMetadata:
    """The metadata of a wheel, read from the ``.dist-info`` that has the wheel's name.

    Raises:
        ValueError or one of ARCHIVE_ERRORS: It is not a wheel, or holds no metadata.
    """
    found = [member for member in members_ending(file, ".dist-info/METADATA") if member.name.count("/") == 1]
    project = canonicalize_name(filename.partition("-")[0])
    own = [member for member in found if canonicalize_name(member.name.partition("-")[0]) == project] or found
    if len(own) != 1:
        raise ValueError(f"it contains {len(own)} METADATA files instead of one")
    if max(own[0].size, own[0].stored) > METADATA_BYTES:
        raise ValueError("its METADATA is too large")
    return parse_metadata(own[0].read(file))


def sdist_metadata(file: IO[bytes], filename: str, size: int | None = None) -> CoreMetadata:
    """The metadata of a source archive, from its PKG-INFO.

    Reads a tar archive as a stream, no further than needed; a small one to its end, for its build backend. Where
    PKG-INFO is not exact and lists no requirements, those of setuptools' ``requires.txt`` are the better guess. Of an
    archive with only a ``setup.py`` no more is known than its file name says; old ones were packed by hand.

    Raises:
        ValueError or one of ARCHIVE_ERRORS: It is not an archive, or holds neither PKG-INFO nor setup.py.
    """
    whole = size is not None and size <= _SMALL_SDIST
    if filename.lower().endswith(".zip"):
        with zipfile.ZipFile(file) as archive:
            members = ((i.filename, archive.open(i), i.file_size) for i in archive.infolist() if _is_wanted(i.filename))
            return source_metadata(members, filename, whole=whole)
    # tarfile decompresses without a limit, and a run of zeros compresses a thousandfold.
    unpacked = cast("IO[bytes]", Counted(_decompressed(file, filename), SDIST_BYTES, filename))
    try:
        with tarfile.open(fileobj=unpacked, mode="r|") as tar:
            return source_metadata(_tar_members(tar), filename, whole=whole)
    except (gzip.BadGzipFile, lzma.LZMAError) as error:
        raise ValueError(f"it cannot be decompressed: {error}") from None


def _decompressed(file: IO[bytes], filename: str) -> IO[bytes]:
    name = filename.lower()
    if name.endswith((".tar.gz", ".tgz")):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file))
    if name.endswith(".tar.bz2"):
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if name.endswith(".tar.xz") else file


def _tar_members(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes], int]]:
    for member in tar:
        name = member.name.removeprefix("./")
        if _is_wanted(name) and member.isfile():
            content = tar.extractfile(member)
            if content is not None:
                yield name, content, member.size


def _is_wanted(name: str) -> bool:
    folder, _, base = name.rpartition("/")
    # Some sdists have no directory of their own: pip and uv build these, too.
    top = base in WANTED and folder.count("/") == 0
    return top or name.endswith(".egg-info/requires.txt")
