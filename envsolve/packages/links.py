"""Files that are on no index: pages of links and local directories, as pip's ``--find-links`` names them.

A page lists the files of many projects, so it is read once and divided by project.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.errors import IndexUnavailableError
from envsolve.packages.model import IndexFile, MissingFileError, is_archive, read_version, version_in
from envsolve.packages.pages import HTML_TYPE, Entry, Listing, PageError, listing, read_page
from envsolve.packages.urls import local_path, redact
from envsolve.system.files import home_path, is_file, is_folder, is_there, open_regular, read_regular
from envsolve.system.limits import PAGE_BYTES

_BLOCK = 1 << 20
PAGES = (".html", ".htm")
#: The name under which a page or a directory is kept that lists the files of many projects.
WHOLE = ""


def place_of(text: str, beside: Path | None = None) -> str | None:
    """The URL of a ``--find-links`` value; None for a path that does not exist, which pip ignores.

    Args:
        text: A URL, or the path of a directory, a page or an archive.
        beside: The directory of the file that names it: paths are relative to it if something is there, otherwise to
            the working directory.
    """
    if "://" in text:
        return None if text.startswith("file:") and not is_there(local_path(text)) else text
    path = home_path(text.removeprefix("file:"))
    candidates = [beside / path, path] if beside is not None else [path]
    found = next((one for one in candidates if is_file(one) or is_folder(one)), None)
    return found.absolute().as_uri() if found is not None else None


def places_of(texts: Iterable[str], beside: Path) -> tuple[tuple[str, ...], list[str]]:
    """The URLs that a file names, and messages about paths that do not exist."""
    places = {text: place_of(text, beside) for text in texts}
    missing = [f"{text} does not exist; it is ignored, as by pip" for text, place in places.items() if place is None]
    return tuple(filter(None, places.values())), missing


def is_page(url: str) -> bool:
    """Whether a URL is that of one page with the files of many projects, and not of an index."""
    return urlsplit(url).path.lower().endswith(PAGES)


def at_hand(url: str, unread: dict[str, IndexUnavailableError]) -> Listing | None:
    """The files at a URL if that needs no request: a local directory with the pages in it, a local page, an archive.

    Args:
        url: Of the place.
        unread: Takes why a page in the directory cannot be read: one odd file does not make the others unusable.

    Raises:
        IndexUnavailableError: It cannot be read.
    """
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if is_archive(name) and not (url.startswith("file:") and is_folder(local_path(url))):
        return listing([Entry(name, url)], url, "", WHOLE)
    if not url.startswith("file:"):
        return None
    path = local_path(url)
    try:
        if not is_folder(path):
            return _page_of_links(path)
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if is_file(Path(entry)))
        found = [Entry(name, (path / name).absolute().as_uri()) for name in names if is_archive(name)]
        for name in names:
            if name.lower().endswith(PAGES):
                try:
                    page = _page_of_links(path / name)
                except (OSError, IndexUnavailableError) as error:
                    unread[(path / name).as_uri()] = _not_read((path / name).as_uri(), error)
                    continue
                found += [Entry(file.filename, file.url, dict(file.hashes)) for file in page]
        return listing(found, url, "", WHOLE)
    except OSError as error:
        raise _not_read(url, error) from None


def _not_read(url: str, error: OSError | IndexUnavailableError) -> IndexUnavailableError:
    if isinstance(error, IndexUnavailableError):
        return error
    return IndexUnavailableError(f"{url} cannot be read: {error.strerror}", hint="correct it after --find-links")


def _page_of_links(path: Path) -> Listing:
    url = path.absolute().as_uri()
    try:
        return read_page(read_regular(path), HTML_TYPE, url, "", WHOLE)
    except PageError as error:
        raise IndexUnavailableError(f"{url} cannot be read: {error}") from None


def local_page(url: str, index: str, name: str) -> Listing | None:
    """The page of a ``file://`` index, which is ``index.html`` in the project's directory, as in pip."""
    directory = local_path(url)
    try:
        return read_page(read_regular(directory / "index.html", PAGE_BYTES), HTML_TYPE, url, index, name)
    except FileNotFoundError:
        if is_folder(local_path(index)):
            return None
        message = f"the local index {index} does not exist"
        raise IndexUnavailableError(message, hint="correct it in your index settings") from None
    except (OSError, PageError) as error:
        raise IndexUnavailableError(f"{directory / 'index.html'} cannot be read: {error}") from None


class Divided:
    """The files of a page or a directory, by project."""

    def __init__(self, page: Listing) -> None:
        self._page = page
        self._wheels: dict[str, list[IndexFile]] = defaultdict(list)
        self._others: list[IndexFile] = []  # the name of an sdist does not say where the version begins
        for file in page:
            if file.filename.endswith(".whl"):
                self._wheels[canonicalize_name(file.filename.partition("-")[0])].append(file)
            else:
                self._others.append(file)

    def of(self, name: str) -> list[IndexFile]:
        """The files of a project, by its normalised name."""
        sources = [file for file in self._others if version_in(file.filename, name) is not None]
        return [*self._wheels.get(name, ()), *sources]


class Merged(Listing, frozen=True):
    """An index's files of a project together with those that are on no index.

    Attributes:
        parts: The location of the files of each version; last, that of files without a version.
    """

    parts: tuple[tuple[tuple[Listing, int], ...], ...] = ()

    def files(self, place: int) -> tuple[IndexFile, ...]:
        """The files of the version at a place, those on no index first."""
        return tuple(file for part, its in self.parts[place] for file in part.files(its))

    def __bool__(self) -> bool:
        return bool(self.parts)


def own_listing(files: Iterable[IndexFile], name: str) -> Listing:
    """The listing of files of one project that are on no index."""
    entries = [
        Entry(f.filename, f.url, dict(f.hashes), f.requires_python, False if f.yanked is None else f.yanked or True)
        for f in files
    ]
    # Their URLs are absolute; the base only lets files of this machine be named.
    base = "file:///" if any(entry.url.startswith("file:") for entry in entries) else ""
    return listing(entries, base, "", name)


class Links:
    """The directories and pages that ``--find-links`` names, each read once.

    One that cannot be read counts as empty, as in pip; uv stops. A project that no other place has is an error then.

    Attributes:
        unread: Why places, and files in them, cannot be read, by URL; these files are left out.
    """

    def __init__(self, places: Iterable[str], read: Callable[[str], Divided]) -> None:
        """Args: read: Reads a place, or raises IndexUnavailableError."""
        self._places = tuple(places)
        self._read = read
        self.unread: dict[str, IndexUnavailableError] = {}

    def of(self, name: str) -> Listing:
        """The files of a project, by its normalised name."""
        files: list[IndexFile] = []
        for place in self._places:
            try:
                files += [file for file in self._read(place).of(name) if file.url not in self.unread]
            except IndexUnavailableError as failure:
                self.unread[place] = failure
        return own_listing(files, name)

    def refuse_unread(self) -> None:
        """Raise if a place could not be read, because it may have the missing file.

        Raises:
            IndexUnavailableError: Why the first of them cannot be read.
        """
        for failure in self.unread.values():
            raise failure


def merged(listings: Sequence[Listing]) -> Listing:
    """One listing of several, of which the first has precedence, as the links of pip have before its indexes."""
    some = [one for one in listings if one]
    if len(some) < 2:
        return next(iter(some or listings))
    places: dict[Version, list[tuple[Listing, int]]] = {}
    spelt: dict[Version, str] = {}
    for one in some:
        for place, text in enumerate(one.versions):
            version = read_version(text)
            assert version is not None  # others are not among the versions of a listing
            places.setdefault(version, []).append((one, place))
            spelt.setdefault(version, text)
    ordered = sorted(places)
    rest = tuple((one, len(one.versions)) for one in some)
    early = frozenset(place for place, version in enumerate(ordered) if version.is_prerelease)
    parts = (*(tuple(places[version]) for version in ordered), rest)
    return Merged(some[-1].url, some[-1].index, tuple(spelt[v] for v in ordered), early, (0,) * len(parts), parts=parts)


def hashed(file: IndexFile) -> IndexFile:
    """A file of this machine with its SHA-256, so that a plan can name it by that; all others as they are.

    Raises:
        MissingFileError: It cannot be read.
    """
    if file.hashes or not file.url.startswith("file:"):
        return file
    digest = hashlib.sha256()
    try:
        with open_regular(local_path(file.url)) as opened:
            while block := opened.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise MissingFileError(f"{file.url} cannot be read: {error.strerror}") from None
    return replace(file, hashes={"sha256": digest.hexdigest()})


def wrong_page(url: str, error: Exception) -> IndexUnavailableError:
    """The error for a document that is not an index page."""
    return IndexUnavailableError(
        f"{redact(url)} is not an index page: {error}",
        hint="check the index URL, and whether a proxy or a login page answers instead of the index",
    )
