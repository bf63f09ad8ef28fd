"""The client of package indexes: concurrent, cached, and strict about which index may answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, TypeGuard, cast

from envsolve.errors import IndexUnavailableError
from envsolve.packages.cache import CachedPage, DiskCache, KnownFiles, Store, default_cache_dir, freshness
from envsolve.packages.links import WHOLE, Divided, Links, at_hand, is_page, local_page, merged, own_listing, wrong_page
from envsolve.packages.model import (
    CoreMetadata,
    DeniedError,
    IndexFile,
    MetadataUnavailableError,
    MissingFileError,
    check_hashes,
    is_file_of,
    normalised,
    parse_metadata,
)
from envsolve.packages.pages import ACCEPT, HTML_TYPE, Listing, PageError, read_page
from envsolve.packages.settings import IndexSettings
from envsolve.packages.urls import Credentials, join_project, local_path, origin, redact
from envsolve.system.files import is_file, open_regular, read_regular
from envsolve.system.limits import METADATA_BYTES, MIB, PAGE_BYTES, LimitError, joined

if TYPE_CHECKING:
    from requests import Response

    from envsolve.packages.http import Session

_Key = tuple[str, ...]
_OTHER_FILE = "choose another version, or report it to the project"


class IndexClient:
    """Reads the indexes of some settings. Thread-safe; answers and failures hold for the life of the client.

    A name is looked for on one index at a time: on the default index, and only if that says that it has no such
    project, on the extra indexes in their order. An index that fails or denies access is an error and never a reason
    to go on to another: otherwise whoever can make an index fail could choose what gets installed.

    Attributes:
        known: What is known about files without asking.
        offline: Whether only the cache and local indexes answer.
        settings: Which indexes, and how to reach them; may hold credentials.
        links: What ``--find-links`` names.
    """

    def __init__(
        self,
        settings: IndexSettings,
        *,
        cache_dir: Path | None = None,
        use_cache: bool = True,
        offline: bool = False,
        concurrency: int = 16,
        known: KnownFiles | None = None,
    ) -> None:
        """Prepare; sends nothing.

        Args:
            settings: Which indexes, and how to reach them.
            cache_dir: The cache; ``ENVSOLVE_CACHE_DIR`` or the user's cache directory if None.
            use_cache: False keeps nothing on disk and reads nothing from it.
            offline: Answer only from the cache, however old, and from local (``file://``) indexes.
            concurrency: Requests at a time in the background.
            known: What is known about files by their hashes.
        """
        self.known = known or KnownFiles(tuple)
        self.offline = offline
        self.settings = settings
        self._credentials = Credentials(settings.keyring)
        self._places = tuple(map(self._credentials.add, (settings.default, *settings.extras)))
        self._pinned = {name: (self._credentials.add(url),) for name, url in settings.pinned.items()}
        places = map(self._credentials.add, settings.links)
        self.links = Links(places, lambda place: self._join(("links", place), partial(self._divided, place)))
        self._store = Store(DiskCache((cache_dir or default_cache_dir()) / "index") if use_cache else None)
        self._concurrency = concurrency
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="index")
        self._jobs: dict[_Key, Future[Any]] = {}
        self._lock = Lock()
        self._starting = Lock()
        self._started: Session | None = None
        # Parsing holds the interpreter; many threads at it would starve those that receive.
        self._parsing = Lock()

    def __enter__(self) -> IndexClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel background work, close the connections, and write the cache."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._store.close()
        if self._started is not None:
            self._started.close()

    def project(self, name: str, index: str | None = None) -> tuple[IndexFile, ...]:
        """The files of a project, oldest version first; empty if no index that was asked has the project.

        Args:
            name: In any spelling.
            index: The only index to ask; None for the default index and, if it lacks the project, the extras.

        Raises:
            IndexUnavailableError: An index that had to be asked did not answer.
            UsageError: It cannot be the name of a project.
        """
        return tuple(self.listing(name, index))

    def listing(self, name: str, index: str | None = None) -> Listing:
        """The files of a project, sorted by version and read one version at a time."""
        canonical = normalised(name)
        if index is not None:
            return self._listed(canonical, (self._credentials.add(index),))
        ways = self.settings.ways(self._pinned.get(canonical, self._places))
        found = merged((self.linked(canonical), *(self._listed(canonical, places) for places in ways)))
        if not found:
            self.links.refuse_unread()
        return found

    def linked(self, name: str) -> Listing:
        """The files of a project in the directories and on the pages that ``--find-links`` names."""
        return self.links.of(normalised(name))

    def _listed(self, name: str, places: Sequence[str]) -> Listing:
        """The files of a normalised name on the first of some indexes that has it."""
        for place in () if self.settings.no_index else places:
            try:
                found: Listing | Divided | None = self._join(*self._page_job(name, place))
            except DeniedError as denial:
                # If no other index is asked after this one, a denial that may mean "no such project" does mean it.
                if not denial.may_mean_absent or place != places[-1]:
                    raise
                found = None
            if isinstance(found, Divided):
                found = own_listing(found.of(name), name) or None
            if found is not None:
                return found
        return Listing("", places[0])

    def prefetch(self, names: Iterable[str], index: str | None = None) -> bool:
        """Read projects from the cache, or start asking for them; a failure shows when :meth:`project` asks.

        Returns:
            Whether any had to be asked for.
        """
        asked = False
        for name in () if self.settings.no_index else map(normalised, names):
            place = self._pinned.get(name, self._places)[0] if index is None else self._credentials.add(index)
            key, work = self._page_job(name, place)
            if key not in self._jobs:
                kept = self._store.page(self._page_key(join_project(place, name))) if key[0] == "page" else None
                done = _done(kept.listing) if self._is_fresh(kept) else None
                self._start(key, work, done)
                asked = asked or done is None
        return asked

    def metadata(self, file: IndexFile) -> CoreMetadata:
        """The metadata of a file: from the cache, its ``.metadata`` sibling, or from inside it.

        Raises:
            MetadataUnavailableError: This file has none that can be used; others of the project may.
            IndexUnavailableError: Its host did not answer.
        """
        key = file.key
        if key not in self._jobs and (known := self._known_metadata(file)) is not None:
            return known
        try:
            return cast("CoreMetadata", self._join(key, partial(self._metadata, file)))
        except MetadataUnavailableError as failure:
            failure.file = file
            raise

    def prefetch_metadata(self, files: Iterable[IndexFile]) -> None:
        """Read metadata from the cache, or start asking for it."""
        for file in files:
            key = file.key
            if key not in self._jobs and self._known_metadata(file) is None:
                kept = self._store.metadata(file)
                self._start(key, partial(self._metadata, file), _done(kept) if kept else None)

    def open(self, file: IndexFile) -> IO[bytes]:
        """The file itself, seekable, read in parts as needed; for ``zipfile.ZipFile``. The caller closes it.

        Raises:
            IndexUnavailableError: It cannot be read.
        """
        if file.url.startswith("file:"):
            try:
                return open_regular(local_path(file.url))
            except OSError as error:
                raise MissingFileError(f"{file.url} cannot be read: {error.strerror}") from None
        self._refuse_offline(f"the file {file.filename}")
        from envsolve.packages.archives import RangedFile

        return RangedFile(file.url, self._session, size=file.size)  # type: ignore[return-value]

    def without_login(self, url: str) -> str:
        """The URL of a file without the login in it, which is sent when the host asks for it."""
        return self._credentials.add(url)

    # Jobs: what is read in the background, and what is read now.

    def _start(self, key: _Key, work: Callable[[], object], kept: Future[Any] | None) -> None:
        """Do work in the background; cached results are returned at once, without a thread."""
        with self._lock:
            if key not in self._jobs:
                self._jobs[key] = kept or self._pool.submit(work)

    def _join(self, key: _Key, work: Callable[[], object]) -> Any:
        """The job's result: of the running or finished one, otherwise of this thread's own work.

        A job that still waits in the pool's queue is taken over, so that what is needed now does not wait for what may
        be needed later.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and not job.cancel():
                own = None
            else:
                own = job = self._jobs[key] = Future()
                own.set_running_or_notify_cancel()
        if own is not None:
            try:
                own.set_result(work())
            except BaseException as error:
                own.set_exception(error)
        return job.result()

    # One page: from the cache, the local disk or the network.

    def _page_job(self, name: str, index: str) -> tuple[_Key, Callable[[], Listing | Divided | None]]:
        """The key and the job for reading an index's page of a normalised name."""
        if is_page(index):
            return ("links", index), partial(self._divided, index)
        return ("page", name, index), partial(self._page, name, index)

    def _divided(self, place: str) -> Divided:
        """The files that ``--find-links`` names; empty if the host does not have it, as for pip."""
        found = at_hand(place, self.links.unread)
        return Divided((self._page(WHOLE, place) or Listing("", "")) if found is None else found)

    def _page(self, name: str, index: str) -> Listing | None:
        """The page of a project, or the list of all projects; None if the index has no such project."""
        url = join_project(index, name)
        if url.startswith("file:"):
            return local_page(url, index, name)
        kept = self._store.page(self._page_key(url))
        if self._is_fresh(kept):
            return kept.listing
        self._refuse_offline(f"the page of {name} on {redact(index)}" if name else f"the page {redact(index)}")
        try:
            answer = self._session.get(
                url,
                lambda response: self._read_page(response, url, index, name, kept),
                {"Accept": ACCEPT} | (kept.conditions() if kept else {}),
                time_limit=self.settings.answer_timeout,
            )
        except (PageError, LimitError) as error:
            raise wrong_page(url, error) from None
        # "No such project" is kept for offline use, and otherwise asked anew: it may be published any moment.
        page, keep = answer or (CachedPage(0, None), True)
        if keep:
            # The login may have come from the keyring meanwhile, and the page is only for those who have it.
            self._store.keep_page(self._page_key(url), page)
        return page.listing

    def _is_fresh(self, kept: CachedPage | None) -> TypeGuard[CachedPage]:
        return kept is not None and (self.offline or kept.fresh_until > self._store.clock())

    def _page_key(self, url: str) -> str:
        login = self._credentials.known(url)
        # A wrong password must not be answered from what the right one got.
        return f"{hashlib.sha256(repr(login).encode()).hexdigest() if login else ''} {url}"

    def _read_page(
        self, response: Response, url: str, index: str, name: str, kept: CachedPage | None
    ) -> tuple[CachedPage, bool]:
        """The page in a response, and whether it may be kept."""
        headers = response.headers
        until = freshness(headers, self._store.clock())
        keep = until is not None
        if response.status_code == 304 and kept is not None:
            return CachedPage(until or 0, kept.listing, kept.etag, kept.last_modified), keep
        content_type = headers.get("Content-Type", "")
        body, place = joined(response.iter_content(MIB), PAGE_BYTES, "it"), str(response.url)
        with self._parsing:
            try:
                found = read_page(body, content_type, place, index, name)
            except PageError as error:
                if not response.history:
                    raise
                raise PageError(f"the page redirects to {redact(place)}: {error}") from None
        if not found and "html" in content_type and content_type != HTML_TYPE and origin(place) != origin(url):
            raise PageError(f"the page redirects to {redact(place)}, which lists no files")
        return CachedPage(until or 0, found, headers.get("ETag"), headers.get("Last-Modified")), keep

    # The metadata of one file.

    def _known_metadata(self, file: IndexFile) -> CoreMetadata | None:
        """The metadata of a file whose hash the catalogue knows."""
        digest = file.hashes.get("sha256")
        if digest is None:
            return None
        known = self._store.known(digest)
        # Reading the catalogue takes longer than the cache: only for a file that no earlier run has come to.
        if known is None and self._store.metadata(file) is None and (known := self.known.metadata(digest)) is not None:
            self._store.keep_known(digest, known)
        return known

    def _metadata(self, file: IndexFile) -> CoreMetadata:
        kept = self._store.metadata(file)
        if kept is not None:
            return kept
        from envsolve.packages.archives import ARCHIVE_ERRORS

        try:
            metadata = self._sibling(file) or self._inside(file)
        except ARCHIVE_ERRORS as error:
            cause = f"{file.filename} has no usable metadata: {error}"
            raise MetadataUnavailableError(cause, hint=_OTHER_FILE) from None
        if not is_file_of(file.filename, metadata):
            cause = f"the metadata in {file.filename} is for {metadata.name} {metadata.version[:50]}"
            raise MetadataUnavailableError(cause, hint=_OTHER_FILE)
        self.known.refuse_placeholder(file.filename, metadata)
        if not file.url.startswith("file:"):
            self._store.keep_metadata(file, metadata)
        return metadata

    def _sibling(self, file: IndexFile) -> CoreMetadata | None:
        """The ``.metadata`` file beside a file (PEP 658), checked against its hashes; None if it is not there."""
        if file.metadata_hashes is None:
            return None
        url = f"{file.url}.metadata"
        if url.startswith("file:"):
            path = local_path(url)
            text = read_regular(path) if is_file(path) else None
        else:
            self._refuse_offline(f"the metadata of {file.filename}")
            limit = self.settings.answer_timeout
            text = self._session.get(
                url, lambda response: joined(response.iter_content(MIB), METADATA_BYTES, "it"), time_limit=limit
            )
        if text is None:
            return None
        check_hashes(text, file.metadata_hashes)
        return parse_metadata(text, sdist=not file.filename.endswith(".whl"))

    def _inside(self, file: IndexFile) -> CoreMetadata:
        from envsolve.packages.archives import sdist_metadata, wheel_metadata

        read = wheel_metadata if file.filename.endswith(".whl") else partial(sdist_metadata, size=file.size)
        if file.filename.endswith((".whl", ".zip")) or file.url.startswith("file:"):
            with self.open(file) as opened:
                return read(opened, file.filename)
        # A compressed tar has no table of contents: read it as it comes, and stop at PKG-INFO.
        self._refuse_offline(f"the file {file.filename}")
        metadata = self._session.get(
            file.url,
            lambda response: read(cast("IO[bytes]", response.raw), file.filename),
            {"Accept-Encoding": "identity"},
            time_limit=self.settings.answer_timeout,
        )
        if metadata is None:
            raise MissingFileError(f"{redact(file.url)} is listed on its index, but the host does not have the file")
        return metadata

    def _refuse_offline(self, what: str) -> None:
        if self.offline:
            raise IndexUnavailableError(
                f"{what} is not in the cache",
                hint="run the command once without --offline, or set ENVSOLVE_CACHE_DIR to a cache that contains it",
            )

    @property
    def _session(self) -> Session:
        with self._starting:
            if self._started is None:
                # requests takes a while to import: a run that is answered from the cache never does.
                from envsolve.packages.http import Session

                self._started = Session(self.settings, self._credentials, connections=self._concurrency)
            return self._started


def _done(answer: object) -> Future[Any]:
    job: Future[Any] = Future()
    job.set_result(answer)
    return job
