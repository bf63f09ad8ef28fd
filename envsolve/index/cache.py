"""Bytes on disk by key: whole or absent, never half; without a usable disk, nothing is kept and nothing fails."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, get_ident

from envsolve.files import user_folder

_CHECK = 4  # bytes of CRC-32 in front of each entry


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``ENVSOLVE_CACHE_DIR``, else the user's cache folder of this platform."""
    if environ.get("ENVSOLVE_CACHE_DIR"):
        return Path(environ["ENVSOLVE_CACHE_DIR"])
    return user_folder("cache", environ)


class DiskCache:
    """A folder of entries; safe for many threads and processes, since an entry is replaced whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writable = True
        self._lock = Lock()

    def read(self, kind: str, key: str) -> memoryview | None:
        """The entry, or None where there is none or it is damaged."""
        path = _place(kind, key)
        try:
            with (self.folder / path).open("rb", 0) as file:
                stored = memoryview(file.read())
        except OSError:
            return None
        checksum, body = bytes(stored[:_CHECK]), stored[_CHECK:]
        return body if checksum == _checksum(body) else None

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
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        with self._lock:
            if self._writable:
                self._writable = False
                from logging import getLogger

                told = "nothing is cached: %s does not take files (%s)"
                getLogger("envsolve.index").warning(told, self.folder, error.strerror or error)


def _place(kind: str, key: str) -> str:
    name = hashlib.sha256(key.encode()).hexdigest()[:40]
    return f"{kind}/{name[:2]}/{name[2:]}"


def _checksum(body: bytes | memoryview) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECK, "big")
