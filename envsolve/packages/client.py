"""The client of package indexes: concurrent, and strict about which index may answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any

from packaging.utils import InvalidName, canonicalize_name

from envsolve.errors import UsageError
from envsolve.packages.cache import DiskCache, Store, default_cache_dir
from envsolve.packages.fetch import Fetcher
from envsolve.packages.model import CoreMetadata, DeniedError, IndexFile, KnownFiles
from envsolve.packages.pages import Listing
from envsolve.packages.settings import IndexSettings
from envsolve.packages.urls import Credentials

if TYPE_CHECKING:
    pass

_Key = tuple[str, ...]


class _Kept:
    """A job that was done before: its answer is in the cache."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def cancel(self) -> bool:
        return False

    def result(self) -> object:
        return self._answer


class IndexClient:
    """Reads the indexes of some settings. Thread-safe; answers, and failures, hold for the life of the client.

    A name is looked for in one place at a time. Without an explicit index that is the default index, and only where it
    says that it has no such project, the extra indexes in their order, the first that has it. An index that fails, or
    that denies access, is an error and never a reason to go on to another: otherwise whoever can make an index fail
    could choose what gets installed.

    Attributes:
        known: What is known of files without asking.
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
            cache_dir: Where to keep answers; ``ENVSOLVE_CACHE_DIR`` or the user's cache folder when None.
            use_cache: False keeps nothing on disk and reads nothing from it.
            offline: Answer from the cache and local (``file://``) indexes alone, however old.
            concurrency: Requests at a time in the background.
            known: What is known of files by their hashes; nothing when None.
        """
        self.known = known or KnownFiles(tuple)
        self._credentials = Credentials((), settings.keyring)
        self.offline = offline
        self._default = self._credentials.add(settings.default)
        self._extras = tuple(self._credentials.add(extra) for extra in settings.extras)
        store = Store(DiskCache((cache_dir or default_cache_dir()) / "index") if use_cache else None)
        self._fetcher = Fetcher(
            settings, self._credentials, store, self.known, offline=offline, connections=concurrency
        )
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="index")
        self._jobs: dict[_Key, Future[Any] | _Kept] = {}
        self._lock = Lock()

    def __enter__(self) -> IndexClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop what waits in the background, and the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._fetcher.close()

    def project(self, name: str, index: str | None = None) -> tuple[IndexFile, ...]:
        """The files of a project.

        Args:
            name: In any spelling.
            index: The only index to ask; None for the default index and, where it lacks the project, the extras.

        Returns:
            Oldest version first; empty where no index that was asked has the project.

        Raises:
            IndexUnavailableError: An index that had to be asked did not answer.
            UsageError: The name is none.
        """
        return tuple(self.listing(name, index))

    def listing(self, name: str, index: str | None = None) -> Listing:
        """The files of a project, sorted by version and read one version at a time."""
        if index is not None:
            return self._page(name, index, last=True) or Listing("", index)
        places = (self._default, *self._extras)
        for place in places:
            found = self._page(name, place, last=place == places[-1])
            if found is not None:
                return found
        return Listing("", self._default)

    def prefetch(self, names: Iterable[str], index: str | None = None) -> bool:
        """Read projects from the cache, or start asking for them; a failure shows when :meth:`project` asks.

        Returns:
            Whether any had to be asked for.
        """
        asked = False
        place = self._default if index is None else self._credentials.add(index)
        for name in map(_normalised, names):
            key = ("page", name, place)
            if key not in self._jobs:
                kept = self._fetcher.kept_page(name, place)
                self._start(key, partial(self._fetcher.page, name, place), _Kept(kept.listing) if kept else None)
                asked = asked or kept is None
        return asked

    def metadata(self, file: IndexFile) -> CoreMetadata:
        """The metadata of a file: from the cache, its ``.metadata`` sibling, or from inside it.

        Raises:
            MetadataUnavailableError: This file has none that can be used; others of the project may.
            IndexUnavailableError: Its host did not answer.
        """
        fetcher, key = self._fetcher, _key(file)
        if key not in self._jobs and (known := fetcher.known_metadata(file)) is not None:
            return known
        result: CoreMetadata = self._join(key, partial(fetcher.metadata, file))
        return result

    def prefetch_metadata(self, files: Iterable[IndexFile]) -> None:
        """Read metadata from the cache, or start asking for it."""
        for file in files:
            key = _key(file)
            if key not in self._jobs and self._fetcher.known_metadata(file) is None:
                kept = self._fetcher.kept_metadata(file)
                self._start(key, partial(self._fetcher.metadata, file), _Kept(kept) if kept else None)

    def open(self, file: IndexFile) -> IO[bytes]:
        """The file itself, seekable, read in parts as needed; for ``zipfile.ZipFile``. The caller closes it.

        Raises:
            IndexUnavailableError: It cannot be read.
        """
        return self._fetcher.open(file)

    def without_login(self, address: str) -> str:
        """The address of a file without the login in it, which is sent where that is asked for."""
        return self._credentials.add(address)

    def _page(self, name: str, index: str, *, last: bool) -> Listing | None:
        """One index's answer; None where it has no such project.

        Args:
            name: In any spelling.
            index: Address, with or without credentials.
            last: No other index is asked after this one: a denial that may mean "no such project" is then read so.
        """
        canonical, place, fetcher = _normalised(name), self._credentials.add(index), self._fetcher
        try:
            result: Listing | None = self._join(("page", canonical, place), partial(fetcher.page, canonical, place))
        except DeniedError as denial:
            if denial.may_mean_absent and last:
                return None
            raise
        return result

    def _start(self, key: _Key, work: Callable[[], object], kept: _Kept | None) -> None:
        """Have work done in the background; what was kept is there at once, since threads would only get in the way."""
        with self._lock:
            if key not in self._jobs:
                self._jobs[key] = kept or self._pool.submit(work)

    def _join(self, key: _Key, work: Callable[[], object]) -> Any:
        """The job's result: of the running or finished one, else of this thread's own work.

        A job that still waits in the pool's queue is taken over, so that what is needed now does not stand behind what
        may be needed later.
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


def _normalised(name: str) -> str:
    """A name as it stands in addresses; anything else (``../``) must not get there."""
    try:
        return canonicalize_name(name, validate=True)
    except InvalidName:
        raise UsageError(f"{name!r} is no project name") from None


def _key(file: IndexFile) -> _Key:
    return ("metadata", file.url, file.filename)
