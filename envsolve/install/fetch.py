"""Download files into a directory, check their hashes, and continue after an interruption."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from envsolve.errors import IndexUnavailableError
from envsolve.formats._packages import strong_hashes
from envsolve.packages.urls import Credentials, local_path, without_secrets
from envsolve.solve.outcome import PlannedPackage
from envsolve.system import progress
from envsolve.system.files import open_regular
from envsolve.system.limits import DOWNLOAD_BYTES

if TYPE_CHECKING:
    import requests

    from envsolve.install.files import File
    from envsolve.packages.http import Session
    from envsolve.packages.settings import IndexSettings

_BLOCK = 1 << 20
_ATTEMPTS = 3  # without a byte received in between
_AT_A_TIME = 4  # files; more would only divide the same bandwidth
_SIZES_AT_A_TIME = 16


class BundledFile(msgspec.Struct, frozen=True):
    """One file of a bundle; ``role`` is ``build`` if it is only needed to build another one."""

    name: str
    version: str
    filename: str
    size: int
    sha256: str
    url: str
    role: Literal["package", "build"] = "package"


class Fetch:
    """Downloads files into a directory, several at a time; each begins where an interrupted run ended."""

    def __init__(self, directory: Path, settings: IndexSettings, *, offline: bool) -> None:
        self._directory, self._settings, self._offline = directory, settings, offline
        self._started: Session | None = None

    def __enter__(self) -> Fetch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._started is not None:
            self._started.close()

    @property
    def _session(self) -> Session:
        if self._started is None:
            from envsolve.packages.http import Session

            self._started = Session(self._settings, _credentials(self._settings), connections=_AT_A_TIME)
        return self._started

    def all(self, packages: Sequence[PlannedPackage], role: Literal["package", "build"]) -> list[BundledFile]:
        """Download every file; returns its size and SHA-256."""
        sizes = [package.size for package in packages]
        # A total that leaves some files out would reach 100 % while files are still missing.
        total = sum(size or 0 for size in sizes) if all(size is not None for size in sizes) else None
        progress.phase("downloading", total, in_bytes=total is not None)
        _ = self._session if any(not str(p.url).startswith("file:") for p in packages) and not self._offline else None
        pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="bundle")
        try:
            found = [*pool.map(self._one, packages)]
        finally:
            # Not waited for: after Ctrl-C the running downloads would hold the process for minutes.
            pool.shutdown(wait=False, cancel_futures=True)
        progress.phase("")
        return [
            BundledFile(p.name, p.version, str(p.filename), size, digest, without_secrets(str(p.url)), role)
            for p, (size, digest) in zip(packages, found, strict=True)
        ]

    def _one(self, package: PlannedPackage) -> tuple[int, str]:
        target = self._directory / str(package.filename)
        hashes, size = strong_hashes(package), package.size
        if target.is_file() and (known := _checked(target, hashes, size)):
            progress.advance(known[0], package.filename)
            return known
        # The final name appears only after the hash was checked, so what has it is whole.
        part = target.with_name(f"{target.name}.part")
        if str(package.url).startswith("file:"):
            with open_regular(local_path(str(package.url))) as source, part.open("wb") as copy:
                shutil.copyfileobj(source, copy)
        else:
            self._download(str(package.url), part, size)
        known = _checked(part, hashes, size)
        if known is None:
            part.unlink()
            message = f"{package.filename} differs from the file in the plan: its hash or size is different"
            raise IndexUnavailableError(
                message, hint="plan again; if the error remains, the index or a proxy changes files"
            )
        part.replace(target)
        return known

    def _download(self, url: str, part: Path, size: int | None) -> None:
        if self._offline:
            raise IndexUnavailableError(f"{url} is not on this machine", hint="run the command without --offline")
        left = _ATTEMPTS
        while True:
            begun = part.stat().st_size if part.is_file() else 0
            # Without it a proxy may compress the answer, and a byte range of compressed data is of no use.
            headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={begun}-"} if begun else {})
            try:
                done = self._session.get(url, _into(part, begun, size or DOWNLOAD_BYTES), headers)
            except IndexUnavailableError:
                if not begun:
                    raise
                # A host without ranges answers 416 to the whole file, and others to a changed one.
                part.unlink()
                continue
            if done is None:
                raise IndexUnavailableError(f"{url} no longer exists", hint="plan again")
            if done:
                return
            # Any progress resets the count: a link that breaks every 100 MB still finishes.
            left = _ATTEMPTS if part.stat().st_size > begun else left - 1
            if not left:
                raise IndexUnavailableError(
                    f"the download of {url} was interrupted too many times",
                    hint="run the same command again to continue",
                )


def _into(part: Path, begun: int, limit: int) -> Callable[[requests.Response], bool]:
    """Return a function that writes a response into a file and returns whether the file is complete.

    It stops beyond the limit, where the file has another size and hash than planned.
    """

    def write(response: requests.Response) -> bool:
        from requests import RequestException
        from urllib3.exceptions import HTTPError

        # A host that ignores ranges answers 200 with the whole file: written from its start, not appended.
        resumed = begun > 0 and response.status_code == 206
        with part.open("r+b" if resumed else "wb") as file:
            if resumed:
                file.seek(begun)
                file.truncate()
            try:
                for block in response.iter_content(_BLOCK):
                    file.write(block)
                    if file.tell() > limit:
                        break
                    progress.advance(len(block), part.name.removesuffix(".part"))
            except (RequestException, HTTPError, OSError):
                return False
        return True

    return write


def _credentials(settings: IndexSettings) -> Credentials:
    credentials = Credentials(settings.keyring)
    for url in (settings.default, *settings.extras):
        credentials.add(url)
    return credentials


def check_sizes(files: Sequence[File]) -> None:
    """Compare the sizes that a plan or a lock states with those of the files, before any is downloaded.

    pip and uv check hashes only, and only at the end of a download, which may have none. A host that does not answer is
    not asked again: the files may be in the manager's cache.

    Raises:
        IndexUnavailableError: A file has another size.
    """
    stated = [file for file in files if file.size is not None]
    remote = [file for file in stated if not file.url.startswith("file:")]
    found = {file.url: _local_size(file.url) for file in stated if file not in remote}
    found |= _remote_sizes(remote) if remote else {}
    for file in stated:
        size = found.get(file.url)
        if size not in (None, file.size):
            what = f"{file.filename} has {size} bytes, and the plan or the lock says {file.size}"
            hint = "the index or the lock was changed: plan again"
            raise IndexUnavailableError(f"the file differs from the planned one: {what}", hint=hint)


def _local_size(url: str) -> int | None:
    try:
        return local_path(url).stat().st_size
    except OSError:
        return None  # the manager says what is wrong with it


def _remote_sizes(files: Sequence[File]) -> dict[str, int | None]:
    """The sizes by URL, as far as hosts state them."""
    from envsolve.packages.http import Session
    from envsolve.packages.settings import read_settings

    settings = replace(read_settings(), retries=0)
    credentials = _credentials(settings)
    session = Session(settings, credentials, connections=_SIZES_AT_A_TIME)
    # Not HEAD: object stores behind signed URLs sign one method, and answer 403 to another.
    headers = {"Accept-Encoding": "identity", "Range": "bytes=0-0"}
    found: dict[str, int | None] = {}

    def ask(url: str) -> int | None:
        return session.get(credentials.add(url), _stated_size, headers, time_limit=settings.answer_timeout)

    pool = ThreadPoolExecutor(_SIZES_AT_A_TIME, thread_name_prefix="size")
    try:
        with suppress(IndexUnavailableError):
            found.update(zip([file.url for file in files], pool.map(ask, [file.url for file in files]), strict=True))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        session.close()
    return found


def _stated_size(response: requests.Response) -> int | None:
    """The size of the whole file, by the headers of a response to a range or to all of it."""
    is_part = response.status_code == 206
    text = response.headers.get("Content-Range" if is_part else "Content-Length", "").rpartition("/")[2]
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _checked(path: Path, hashes: Mapping[str, str], stated: int | None) -> tuple[int, str] | None:
    """The size and the SHA-256 of a file; None if it has another size, or not all of some hashes."""
    digests = {name: hashlib.new(name) for name in {"sha256", *hashes}}
    size = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            for one in digests.values():
                one.update(block)
    wrong = (digests[name].hexdigest() != digest.lower() for name, digest in hashes.items())
    if stated not in (None, size) or any(wrong):
        return None
    return size, digests["sha256"].hexdigest()
