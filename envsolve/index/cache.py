"""Bytes on disk by key: whole or absent, never half; without a usable disk, nothing is kept and nothing fails."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, get_ident

import msgspec

from envsolve.files import user_folder

_CHECK = 4  # bytes of CRC-32 in front of each entry


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``ENVSOLVE_CACHE_DIR``, else the user's cache folder of this platform."""
    if environ.get("ENVSOLVE_CACHE_DIR"):
        return Path(environ["ENVSOLVE_CACHE_DIR"])
    return user_folder("cache", environ)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One entry as it was read or written: what tells it from all others that are ever in its place.

    Attributes:
        path: Its file, below the folder of the cache.
        changed: When the file was written, in nanoseconds; it is replaced, and never changed.
        size: Bytes of the file.
        checksum: The CRC-32 in front.
    """

    path: str
    changed: int
    size: int
    checksum: bytes


class Origin(msgspec.Struct, frozen=True):
    """Where an answer stands in a cache, and until when (seconds since the epoch) nobody asks for it again."""

    entry: Entry
    fresh_until: float


class DiskCache:
    """A folder of entries; safe for many threads and processes, since an entry is replaced whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writable = True
        self._lock = Lock()
        self._entries: dict[str, Entry] = {}

    def read(self, kind: str, key: str) -> memoryview | None:
        """The entry, or None where there is none or it is damaged."""
        path = _place(kind, key)
        self._entries.pop(path, None)
        try:
            with (self.folder / path).open("rb", 0) as file:
                status = os.fstat(file.fileno())
                stored = memoryview(file.read())
        except OSError:
            return None
        checksum, body = bytes(stored[:_CHECK]), stored[_CHECK:]
        if checksum != _checksum(body):
            return None
        self._entries[path] = Entry(path, status.st_mtime_ns, status.st_size, checksum)
        return body

    def entry(self, kind: str, key: str) -> Entry | None:
        """The entry as this object last read or wrote it; None where it did neither."""
        return self._entries.get(_place(kind, key))

    def has(self, entry: Entry) -> bool:
        """Whether an entry is there as it was: hundreds are asked after at a time, so that no path or file is made."""
        try:
            file = os.open(f"{self.folder}/{entry.path}", os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError:
            return False
        try:
            status = os.fstat(file)
            there = (status.st_mtime_ns, status.st_size, os.read(file, _CHECK))
            return there == (entry.changed, entry.size, entry.checksum)
        except OSError:
            return False
        finally:
            os.close(file)

    def write(self, kind: str, key: str, body: bytes) -> None:
        """Store an entry. A disk that does not take it is reported once, and then left alone."""
        if not self._writable:
            return
        place = _place(kind, key)
        path, checksum = self.folder / place, _checksum(body)
        temporary = path.with_name(f".new-{os.getpid()}-{get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb", 0) as file:
                file.write(checksum)
                file.write(body)
                status = os.fstat(file.fileno())
            temporary.replace(path)
            self._entries[place] = Entry(place, status.st_mtime_ns, status.st_size, checksum)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        with self._lock:
            if self._writable:
                self._writable = False
                from logging import getLogger  # whose import costs more than to read a kept answer

                told = "nothing is cached: %s does not take files (%s)"
                getLogger("envsolve.index").warning(told, self.folder, error.strerror or error)


def _place(kind: str, key: str) -> str:
    name = hashlib.sha256(key.encode()).hexdigest()[:40]
    return f"{kind}/{name[:2]}/{name[2:]}"


def _checksum(body: bytes | memoryview) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECK, "big")
