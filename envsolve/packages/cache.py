"""The cache: parsed project pages with their freshness, and core metadata for ever.

Metadata that was read is kept by file. Of what the catalogue knows by hash, all that was ever used is one entry:
writing hundreds of small ones takes longer than all else that a plan does.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock, get_ident
from typing import TypeVar

import msgspec

from envsolve.facts.builds import KnownMetadata
from envsolve.facts.catalogue import LateMetadata
from envsolve.facts.evidence import Placeholder
from envsolve.packages.model import CoreMetadata, IndexFile, PlaceholderError
from envsolve.packages.pages import Listing
from envsolve.system.files import user_folder

# Bytes on disk by key: whole or absent, never half; without a usable disk, nothing is kept and nothing fails.


Value = TypeVar("Value")

_CHECK = 4  # bytes of CRC-32 in front of each entry


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``ENVSOLVE_CACHE_DIR``, otherwise the user's cache directory of this platform."""
    if environ.get("ENVSOLVE_CACHE_DIR"):
        return Path(environ["ENVSOLVE_CACHE_DIR"])
    return user_folder("cache", environ)


class DiskCache:
    """A directory of entries; safe for many threads and processes, since an entry is replaced whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writable = True
        self._lock = Lock()

    def read(self, kind: str, key: str) -> memoryview | None:
        """The entry; None if it is missing or damaged."""
        path = _place(kind, key)
        try:
            with (self.folder / path).open("rb", 0) as file:
                if not _is_own(file.fileno()):
                    return None
                stored = memoryview(file.read())
        except OSError:
            return None
        checksum, body = bytes(stored[:_CHECK]), stored[_CHECK:]
        return body if checksum == _checksum(kind, key, body) else None

    def write(self, kind: str, key: str, body: bytes) -> None:
        """Store an entry. If the disk refuses it, that is reported once and the cache is no longer used."""
        if not self._writable:
            return
        place = _place(kind, key)
        path, checksum = self.folder / place, _checksum(kind, key, body)
        temporary = path.with_name(f".new-{os.getpid()}-{get_ident()}")
        try:
            make_private(path.parent)
            with os.fdopen(os.open(temporary, _NEW, 0o600), "wb", 0) as file:
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
                getLogger("envsolve.packages").warning(told, self.folder, error.strerror or error)


def _place(kind: str, key: str) -> str:
    name = hashlib.sha256(key.encode()).hexdigest()[:40]
    return f"{kind}/{name[:2]}/{name[2:]}"


_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def _checksum(kind: str, key: str, body: bytes | memoryview) -> bytes:
    # The key is part of it, so that an entry in the place of another is damaged.
    return zlib.crc32(body, zlib.crc32(f"{kind} {key}".encode())).to_bytes(_CHECK, "big")


def _is_own(descriptor: int) -> bool:
    """Whether the user, or root, wrote a file: anybody could put entries into a shared directory."""
    return not hasattr(os, "getuid") or os.fstat(descriptor).st_uid in (os.getuid(), 0)


def make_private(directory: Path) -> None:
    """Make a directory and its parents for the user only: pages of private indexes are kept in them."""
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


# Bump when the shape of Listing, CoreMetadata or CachedPage changes: older entries are then never looked at.
_PAGES, _METADATA, _KNOWN = "pages-4", "metadata-4", "known-3"
# Ten minutes is what the public default index sends in its own Cache-Control.
_UNSAID = 600  # seconds of freshness where an index sends no Cache-Control
_LONGEST = 24 * 3600


class CachedPage(msgspec.Struct, array_like=True, frozen=True):
    """A project page as last seen.

    Attributes:
        fresh_until: Seconds since the epoch; until then nobody asks again.
        listing: None if the index had no such project.
        etag: For a conditional request.
        last_modified: For a conditional request.
    """

    fresh_until: float
    listing: Listing | None
    etag: str | None = None
    last_modified: str | None = None

    def conditions(self) -> dict[str, str]:
        """Headers that let the index answer "not modified"."""
        conditions = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in conditions.items() if value and self.listing is not None}


def freshness(headers: Mapping[str, str], now: float) -> float | None:
    """Until when an answer is fresh, by its Cache-Control; None if it must not be kept."""
    control = headers.get("Cache-Control", "").lower()
    if "no-store" in control:
        return None
    if "no-cache" in control:
        return now
    age = re.search(r"max-age=(\d+)", control)
    return now + min(int(age[1]) if age else _UNSAID, _LONGEST)


class Store:
    """Typed access to a :class:`DiskCache`; without one, everything is a miss."""

    def __init__(self, cache: DiskCache | None, clock: Callable[[], float] = time.time) -> None:
        self._cache = cache
        self.clock = clock
        self._write = msgspec.msgpack.Encoder().encode
        self._has_new = False

    def close(self) -> None:
        """Write the new entries of what the catalogue knows; if two runs do so at once, one has to find them again."""
        if self._has_new:
            self._keep(_KNOWN, "", self._known.copy())
            self._has_new = False

    def page(self, key: str) -> CachedPage | None:
        """The page under a key, fresh or stale."""
        kept = self._kept(_PAGES, key, _read_page)
        if kept is not None and kept.fresh_until > self.clock() + _LONGEST:
            # The clock was ahead when it was kept.
            return msgspec.structs.replace(kept, fresh_until=0.0)
        return kept

    def keep_page(self, key: str, page: CachedPage) -> None:
        """Replace the page under a key."""
        self._keep(_PAGES, key, page)

    def metadata(self, file: IndexFile) -> CoreMetadata | None:
        """The metadata of exactly this file, if cached."""
        return self._kept(_METADATA, _metadata_key(file), _read_metadata)

    def keep_metadata(self, file: IndexFile, metadata: CoreMetadata) -> None:
        """Cache the metadata of a file."""
        self._keep(_METADATA, _metadata_key(file), metadata)

    def known(self, digest: str) -> CoreMetadata | None:
        """The metadata of every file of this SHA-256, if an earlier run found it in the catalogue."""
        return self._known.get(digest)

    def keep_known(self, digest: str, metadata: CoreMetadata) -> None:
        """Cache what the catalogue knows; it is written when the store is closed."""
        self._known[digest] = metadata
        self._has_new = True

    @cached_property
    def _known(self) -> dict[str, CoreMetadata]:
        return self._kept(_KNOWN, "", _read_known) or {}

    def _kept(self, kind: str, key: str, decode: Callable[[memoryview], Value]) -> Value | None:
        body = None if self._cache is None else self._cache.read(kind, key)
        try:
            return None if body is None else decode(body)
        except msgspec.MsgspecError:
            return None

    def _keep(self, kind: str, key: str, value: object) -> None:
        if self._cache is not None:
            self._cache.write(kind, key, self._write(value))


_read_page = msgspec.msgpack.Decoder(CachedPage).decode
_read_metadata = msgspec.msgpack.Decoder(CoreMetadata).decode
_read_known = msgspec.msgpack.Decoder(dict[str, CoreMetadata]).decode


def _metadata_key(file: IndexFile) -> str:
    # The hash alone would let one index speak for the files of another: what was read was not the whole file, so
    # nobody has checked that it belongs to that hash.
    digests = ",".join(f"{name}={digest}" for name, digest in sorted(file.hashes.items()))
    return f"{file.url} {digests}"


# What the catalogue says of files, by their hashes, and of the newest release of a package that it knows.


class KnownFiles:
    """Thread-safe. The catalogue is read when something is asked first: a run that the cache answers asks nothing."""

    def __init__(
        self,
        records: Callable[[], Sequence[KnownMetadata | LateMetadata]],
        placeholders: Callable[[], Sequence[Placeholder]] = tuple,
    ) -> None:
        """Args: records: Reads them; those of a package follow each other, the newest release last."""
        self._read = records
        self._placeholders = placeholders

    def refuse_placeholder(self, filename: str, metadata: CoreMetadata) -> None:
        """Fail for a file that is not the project of its name.

        Raises:
            PlaceholderError: It says so; the hint names the index that has the project.
        """
        for one in self._placeholders() if metadata.summary else ():
            if metadata.summary.startswith(one.summary):
                text = f'{filename} is only a placeholder and does not contain the project: "{metadata.summary}"'
                options = f"--extra-index-url {one.index} --index-strategy unsafe-best-match"
                raise PlaceholderError(text, hint=f"the project is on {one.index}: {options}" if one.index else None)

    @cached_property
    def _records(self) -> Sequence[KnownMetadata | LateMetadata]:
        return self._read()

    @cached_property
    def _by_hash(self) -> Mapping[str, KnownMetadata | LateMetadata]:
        return {digest: record for record in self._records for digest in record.sha256}

    @cached_property
    def _newest(self) -> Mapping[str, KnownMetadata | LateMetadata]:
        return {record.package: record for record in self._records}

    def metadata(self, digest: str) -> CoreMetadata | None:
        """The metadata of a file of this SHA-256; None if it is not known."""
        if (found := self._by_hash.get(digest)) is None:
            return None
        record = _whole(found)
        return CoreMetadata(record.package, record.version, record.requires, record.requires_python, record.extras)

    def requires(self, package: str) -> tuple[str, ...]:
        """Requires-Dist lines of the newest release that is known: what the package is likely to need."""
        record = self._newest.get(package)
        return _whole(record).requires if record else ()


def _whole(record: KnownMetadata | LateMetadata) -> KnownMetadata:
    return record.read() if isinstance(record, LateMetadata) else record
