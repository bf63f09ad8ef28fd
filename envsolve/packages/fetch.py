"""Fetch one page, the metadata of one file, or one file: from the cache, the local disk or the network."""

from __future__ import annotations

import hashlib
from threading import Lock
from typing import IO, TYPE_CHECKING, cast

from packaging.utils import canonicalize_name

from envsolve.errors import IndexUnavailableError
from envsolve.packages.cache import CachedPage, Store, freshness
from envsolve.packages.model import (
    CoreMetadata,
    IndexFile,
    KnownFiles,
    MetadataUnavailableError,
    MissingFileError,
    parse_metadata,
)
from envsolve.packages.pages import ACCEPT, HTML_TYPE, Listing, PageError, read_page
from envsolve.packages.settings import IndexSettings
from envsolve.packages.urls import Credentials, join_project, local_path, origin, redact

if TYPE_CHECKING:
    from requests import Response

    from envsolve.packages.http import Session

_CHECKED_DIGESTS = ("sha512", "sha384", "sha256", "sha224")
_OTHER_FILE = "choose another version, or report it to the project"


class Fetcher:
    """Thread-safe; remembers nothing but through its store. Addresses come without credentials."""

    def __init__(
        self,
        settings: IndexSettings,
        credentials: Credentials,
        store: Store,
        known: KnownFiles,
        *,
        offline: bool,
        connections: int,
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._store = store
        self._known = known
        self._offline = offline
        self._connections = connections
        self._starting = Lock()
        self._started: Session | None = None
        # Parsing holds the interpreter; many threads at it would starve those that receive.
        self._parsing = Lock()

    def close(self) -> None:
        """Drop the connections, and finish the cache."""
        self._store.close()
        if self._started is not None:
            self._started.close()

    def page(self, name: str, index: str) -> Listing | None:
        """What stands on the page of a normalised name, or None where the index has no such project.

        Raises:
            IndexUnavailableError: The index did not answer, or not with a page; offline, that the cache lacks it.
        """
        url = join_project(index, name)
        if url.startswith("file:"):
            return _local_page(url, index, name)
        kept = self._store.page(self._key(url))
        if kept is not None and self._is_good(kept):
            return kept.listing
        self._refuse_offline(f"the page of {name} on {redact(index)}")
        try:
            answer = self._session.get(
                url,
                lambda response: self._understand(response, url, index, name, kept),
                {"Accept": ACCEPT} | (kept.conditions() if kept else {}),
                time_limit=self._settings.answer_timeout,
            )
        except PageError as error:
            raise IndexUnavailableError(
                f"{redact(url)} is no index page: {error}",
                hint="check the index address, and that no proxy or login page stands between",
            ) from None
        # "No such project" is kept for offline use, and otherwise asked anew: it may be published any moment.
        page, keep = answer or (CachedPage(0, None), True)
        if keep:
            self._store.keep_page(self._key(url), page)
        return page.listing

    def kept_page(self, name: str, index: str) -> CachedPage | None:
        """What :meth:`page` would answer from the cache; None where it has to ask."""
        kept = self._store.page(self._key(join_project(index, name)))
        return kept if kept is not None and self._is_good(kept) else None

    def _key(self, url: str) -> str:
        login = self._credentials.known(url)
        return f"{login[0] if login else ''} {url}"

    def _is_good(self, kept: CachedPage) -> bool:
        return self._offline or kept.fresh_until > self._store.clock()

    def _understand(
        self, response: Response, url: str, index: str, name: str, kept: CachedPage | None
    ) -> tuple[CachedPage, bool]:
        """The page in an answer, and whether it may be kept."""
        headers = response.headers
        until = freshness(headers, self._store.clock())
        keep = until is not None
        if response.status_code == 304 and kept is not None:
            return CachedPage(until or 0, kept.listing, kept.etag, kept.last_modified), keep
        content_type = headers.get("Content-Type", "")
        body, place = response.content, str(response.url)
        with self._parsing:
            try:
                found = read_page(body, content_type, place, index, name)
            except PageError as error:
                if not response.history:
                    raise
                raise PageError(f"it leads to {redact(place)}: {error}") from None
        if not found and "html" in content_type and content_type != HTML_TYPE and origin(place) != origin(url):
            raise PageError(f"it leads to {redact(place)}, which lists no files")
        return CachedPage(until or 0, found, headers.get("ETag"), headers.get("Last-Modified")), keep

    def kept_metadata(self, file: IndexFile) -> CoreMetadata | None:
        """The metadata of a file from the cache."""
        return self._store.metadata(file)

    def known_metadata(self, file: IndexFile) -> CoreMetadata | None:
        """The metadata of a file of which the index states a hash that the catalogue knows.

        The catalogue is read only for a file that no earlier run has come to.
        """
        digest = file.hashes.get("sha256")
        if digest is None:
            return None
        known = self._store.known(digest)
        if known is None and self._store.metadata(file) is None and (known := self._known.metadata(digest)) is not None:
            self._store.keep_known(digest, known)
        return known

    def metadata(self, file: IndexFile) -> CoreMetadata:
        """The metadata of a file.

        Raises:
            MetadataUnavailableError: This file has none that can be used.
            IndexUnavailableError: Its host did not answer; offline, that the cache lacks it.
        """
        kept = self.kept_metadata(file)
        if kept is not None:
            return kept
        metadata = self._read_metadata(file)
        if not _bears(file.filename, metadata.name):
            raise MetadataUnavailableError(f"{file.filename} says that it is {metadata.name}", hint=_OTHER_FILE)
        if not file.url.startswith("file:"):
            self._store.keep_metadata(file, metadata)
        return metadata

    def _read_metadata(self, file: IndexFile) -> CoreMetadata:
        from envsolve.packages.archives import ARCHIVE_ERRORS

        try:
            return self._sibling(file) or self._inside(file)
        except ARCHIVE_ERRORS as error:
            cause = f"{file.filename} has no usable metadata: {error}"
            raise MetadataUnavailableError(cause, hint=_OTHER_FILE) from None

    def _sibling(self, file: IndexFile) -> CoreMetadata | None:
        """The ``.metadata`` file beside a file (PEP 658), checked against its hashes; None where it is not there."""
        if file.metadata_hashes is None:
            return None
        url = f"{file.url}.metadata"
        if url.startswith("file:"):
            path = local_path(url)
            text = path.read_bytes() if path.is_file() else None
        else:
            self._refuse_offline(f"the metadata of {file.filename}")
            text = self._session.get(url, lambda response: response.content, time_limit=self._settings.answer_timeout)
        if text is None:
            return None
        for algorithm in _CHECKED_DIGESTS:
            expected = file.metadata_hashes.get(algorithm)
            if expected is not None and hashlib.new(algorithm, text).hexdigest() != expected.lower():
                raise ValueError(f"its .metadata file has another {algorithm} than the index says")
        return parse_metadata(text, sdist=not file.filename.endswith(".whl"))

    def _inside(self, file: IndexFile) -> CoreMetadata:
        from envsolve.packages.archives import sdist_metadata, wheel_metadata

        if file.filename.endswith(".whl"):
            with self.open(file) as opened:
                return wheel_metadata(opened, file.filename)
        if file.filename.endswith(".zip") or file.url.startswith("file:"):
            with self.open(file) as opened:
                return sdist_metadata(opened, file.filename)
        # A compressed tar has no table of contents: read it as it comes, and stop at PKG-INFO.
        self._refuse_offline(f"the file {file.filename}")
        metadata = self._session.get(
            file.url,
            lambda response: sdist_metadata(cast("IO[bytes]", response.raw), file.filename),
            {"Accept-Encoding": "identity"},
        )
        if metadata is None:
            raise MissingFileError(f"{redact(file.url)} is listed by its index, and its host does not have it")
        return metadata

    def open(self, file: IndexFile) -> IO[bytes]:
        """The file, seekable; the caller closes it.

        Raises:
            IndexUnavailableError: It cannot be read.
        """
        if file.url.startswith("file:"):
            try:
                return local_path(file.url).open("rb")
            except OSError as error:
                raise MissingFileError(f"{file.url} cannot be read: {error.strerror}") from None
        self._refuse_offline(f"the file {file.filename}")
        from envsolve.packages.archives import RangedFile

        return RangedFile(file.url, self._session, size=file.size)  # type: ignore[return-value]

    def _refuse_offline(self, what: str) -> None:
        if self._offline:
            raise IndexUnavailableError(
                f"{what} is not in the cache",
                hint="run once without --offline, or set ENVSOLVE_CACHE_DIR to a full cache",
            )

    @property
    def _session(self) -> Session:
        with self._starting:
            if self._started is None:
                # requests takes a while to import: a run that is answered from the cache never does.
                from envsolve.packages.http import Session

                self._started = Session(self._settings, self._credentials, connections=self._connections)
            return self._started


def _bears(filename: str, name: str) -> bool:
    """Whether a file of this name may be of the project; an sdist's name does not say where its version starts."""
    if filename.endswith(".whl"):
        return canonicalize_name(filename.partition("-")[0]) == canonicalize_name(name)
    return canonicalize_name(filename).startswith(f"{canonicalize_name(name)}-")


def _local_page(url: str, index: str, name: str) -> Listing | None:
    """The page of a ``file://`` index, which is ``index.html`` in the project's folder, as pip has it."""
    folder = local_path(url)
    try:
        return read_page((folder / "index.html").read_bytes(), HTML_TYPE, url, index, name)
    except FileNotFoundError:
        if not local_path(index).is_dir():
            raise IndexUnavailableError(
                f"the local index {index} is not there", hint="correct it in your index settings"
            ) from None
        return None
    except (OSError, PageError) as error:
        raise IndexUnavailableError(f"{folder / 'index.html'} cannot be read: {error}") from None
