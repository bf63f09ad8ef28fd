"""A project page as it is kept: its files by version, read one version at a time.

A plan of two hundred packages meets pages with more than a hundred thousand files and takes two hundred of them. So of
each file nothing but the name is read when a page arrives, and what the page says of it is kept as it stands, sorted by
version; only the versions that the solve comes to are made into ``IndexFile`` values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from urllib.parse import urljoin, urlsplit

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.packages.model import IndexFile, specifier_text

_ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz")
_SDIST = re.compile(r"\.(?:tar\.gz|zip|tar\.bz2|tgz)$")


class Entry(msgspec.Struct, rename="kebab", omit_defaults=True, gc=False):
    """A file as a page in JSON has it (PEP 691, 700, 714); its address may be relative to the page."""

    filename: str
    url: str
    hashes: dict[str, str] = {}
    requires_python: str | None = None
    yanked: bool | str = False
    upload_time: str | None = None
    size: int | None = None
    core_metadata: bool | dict[str, str] | None = None
    dist_info_metadata: bool | dict[str, str] | None = None


Record = bytes | memoryview | msgspec.Raw
"""What a page says of one file, as JSON."""

# RecursionError: msgspec's answer to a document nested without end.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_write = msgspec.json.Encoder().encode
_read_entries = msgspec.json.Decoder(list[Entry]).decode
_read_entry = msgspec.json.Decoder(Entry).decode
_read_records = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Listing(msgspec.Struct, array_like=True, frozen=True):
    """The files of one project on one index.

    Attributes:
        url: Where the page was in the end, which relative links start from.
        index: Address of the index, without credentials.
        versions: Oldest first, each as its first file spells it.
        early: Places among ``versions`` of the pre-releases.
        ends: Where the records of each version end; those of files whose names hold no version come last.
        records: A JSON array of entries for each version.
    """

    url: str
    index: str
    versions: tuple[str, ...] = ()
    early: frozenset[int] = frozenset()
    ends: tuple[int, ...] = (0,)
    records: memoryview = memoryview(b"")

    def files(self, place: int) -> tuple[IndexFile, ...]:
        """The files of the version at a place; at ``len(versions)``, those without one."""
        start = self.ends[place - 1] if place else 0
        if start == self.ends[place]:
            return ()
        entries = _entries(self.records[start : self.ends[place]])
        found = (_file(entry, self.url, self.index) for entry in entries)
        return tuple(file for file in found if file is not None)

    def named(self, filename: str) -> IndexFile | None:
        """The file of a name, if it is listed."""
        version = version_in(filename)
        likely = [self.versions.index(version)] if version in self.versions else []
        places = (*likely, *range(len(self.ends)))
        return next((file for place in places for file in self.files(place) if file.filename == filename), None)

    def __bool__(self) -> bool:
        return bool(self.records)

    def __iter__(self) -> Iterator[IndexFile]:
        for place in range(len(self.ends)):
            yield from self.files(place)


def listing(entries: Iterable[Entry], url: str, index: str, name: str) -> Listing:
    """Sort entries; the other arguments are those of :func:`sorted_page`."""
    return sorted_page(((entry.filename, _write(entry)) for entry in entries), url, index, name)


def sorted_page(files: Iterable[tuple[str, Record]], url: str, index: str, name: str) -> Listing:
    """Sort the files of a page.

    Args:
        files: Names, each with what the page says of the file, in the order of the page.
        url: Where the page was in the end.
        index: Address of the index.
        name: The project, normalised.
    """
    groups = _grouped(files, name)
    # Two spellings of one version (1.0, 1.0.0) are one version.
    spelt: dict[Version, list[str]] = {}
    rest = groups.pop(None, [])
    for text in groups:
        version = read_version(text or "")
        if version is None:
            rest += groups[text]
        else:
            spelt.setdefault(version, []).append(text or "")
    ordered = sorted(spelt)
    parts = [_array(record for text in spelt[version] for record in groups[text]) for version in ordered]
    parts.append(_array(rest) if rest else b"")
    ends = tuple(accumulate(map(len, parts)))
    early = frozenset(place for place, version in enumerate(ordered) if version.is_prerelease)
    return Listing(url, index, tuple(spelt[v][0] for v in ordered), early, ends, memoryview(b"".join(parts)))


def _grouped(files: Iterable[tuple[str, Record]], name: str) -> dict[str | None, list[Record]]:
    """Records by version, as the file names spell it; files of one version mostly stand together."""
    groups: dict[str | None, list[Record]] = {}
    start, group = "\0", []
    for filename, record in files:
        if not (filename.startswith(start) and filename.endswith(".whl")):
            version = version_in(filename, name)
            group = groups.setdefault(version, [])
            start = f"{filename.partition('-')[0]}-{version}-"
        group.append(record)
    return groups


def _array(records: Iterable[Record]) -> bytes:
    return b"[" + b",".join(records) + b"]"


def _entries(array: memoryview) -> list[Entry]:
    """The entries of a JSON array; those that cannot be read are left out."""
    try:
        return _read_entries(array)
    except UNREADABLE:
        # One bad entry fails the fast decoder; the slow one tells the good from the bad.
        return [entry for entry in map(_entry, _read_records(array)) if entry is not None]


def _entry(record: msgspec.Raw) -> Entry | None:
    try:
        return _read_entry(record)
    except UNREADABLE:
        return None


def version_in(filename: str, name: str | None = None) -> str | None:
    """The version part of a wheel's or sdist's file name; None where the name has neither form.

    Args:
        filename: With its suffix.
        name: The project, normalised: without it, that of an old sdist whose name holds dashes is not found.
    """
    if filename.endswith(".whl"):
        parts = filename.split("-", 2)
        return parts[1] if len(parts) == 3 else None
    stem = filename.removesuffix(".tar.gz")
    if stem == filename and (stem := _SDIST.sub("", filename)) == filename:
        return None
    if name is None:
        return stem.rpartition("-")[2]
    # The project's name may itself hold dashes in old sdists, so its length decides where the version starts.
    length = len(name)
    if stem[length : length + 1] == "-" and stem[:length].lower().replace("_", "-").replace(".", "-") == name:
        return stem[length + 1 :]
    # A normalised name is never longer than what it is of.
    for cut in (i for i, char in enumerate(stem) if char == "-"):
        if canonicalize_name(stem[:cut]) == name:
            return stem[cut + 1 :]
    return None


@lru_cache(maxsize=65536)
def read_version(text: str) -> Version | None:
    """A version, or None for a text that is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def is_archive(filename: str) -> bool:
    """Whether a name may be that of a wheel or a source archive."""
    return "/" not in filename and filename.lower().endswith(_ARCHIVES)


def _file(entry: Entry, url: str, index: str) -> IndexFile | None:
    place = resolved(entry.url, url)
    if place is None or not is_archive(entry.filename):
        return None
    metadata = entry.core_metadata
    if metadata is None:
        metadata = entry.dist_info_metadata
    yanked = entry.yanked
    return IndexFile(
        entry.filename,
        place,
        index,
        entry.hashes,
        specifier_text(entry.requires_python),
        None if yanked is False else "" if yanked is True else yanked,
        entry.upload_time,
        entry.size,
        metadata if isinstance(metadata, dict) else {} if metadata else None,
    )


def resolved(link: str, base: str) -> str | None:
    """A link's absolute address without fragment; None for one that a page at ``base`` may not give."""
    link = link.partition("#")[0]
    if link.startswith(("https://", "http://")) and "[" not in link:  # an IPv6 address may be a broken one
        return link
    place = safe_join(base, link)
    if place is None or not place.startswith(("https://", "http://", "file://")):
        return None
    if place.startswith("file:") and not base.startswith("file:"):
        return None
    return place


def safe_join(base: str, link: str) -> str | None:
    """A link's address seen from a base; None where that cannot be read."""
    try:
        joined = urljoin(base, link)
        urlsplit(joined)
    except ValueError:
        return None
    return joined
