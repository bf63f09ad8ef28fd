"""Project pages: PEP 691 JSON and PEP 503 HTML, with PEP 592, 629, 658, 700 and 714, into listings. Pure.

An index page is foreign input. An entry that cannot be read, that is neither a wheel nor a source archive, or that
points where an index may not point (from a remote page to a local file) is left out; the rest of the page is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from posixpath import basename
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.version import Version

from envsolve.packages.model import IndexFile, is_archive, read_version, specifier_text, version_in
from envsolve.packages.urls import resolved, safe_join

# A plan of two hundred packages meets pages with more than a hundred thousand files and uses two hundred of them. So
# only the names are read when a page arrives. Its records are kept as they are, sorted by version, and only the
# versions that the solver visits become ``IndexFile`` values.


class Entry(msgspec.Struct, rename="kebab", omit_defaults=True, gc=False):
    """A file as a page in JSON has it (PEP 691, 700, 714); its URL may be relative to the page."""

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
"""One file of a page, as JSON."""

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
        index: URL of the index, without credentials.
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
        files: Names, each with the page's data on the file, in the order of the page.
        url: Where the page was in the end.
        index: URL of the index.
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
    """Records by version, as the file names spell it; files of one version mostly follow each other."""
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


def _file(entry: Entry, url: str, index: str) -> IndexFile | None:
    place = resolved(entry.url, url)
    # A line break in any of these would become a line of a Dockerfile or a requirements file.
    if place is None or not is_archive(entry.filename) or not place.isprintable() or " " in place:
        return None
    metadata = entry.core_metadata
    if metadata is None:
        metadata = entry.dist_info_metadata
    yanked = entry.yanked
    return IndexFile(
        entry.filename,
        place,
        index,
        {name: digest for name, digest in entry.hashes.items() if _is_digest(name, digest)},
        specifier_text(entry.requires_python),
        None if yanked is False else "" if yanked is True else " ".join(yanked.split()),
        entry.upload_time,
        entry.size,
        metadata if isinstance(metadata, dict) else {} if metadata else None,
    )


def _is_digest(name: str, digest: str) -> bool:
    return name.isidentifier() and digest.isalnum() and digest.isascii()


# The links of a page in HTML, and what else tells a listing from a login page.


Anchor = dict[str, str | None]  # the attributes of one link that has a URL

# What older projects have on their pages besides, and tools add beside a file.
_OTHER_FILES = re.compile(r"\.(?:egg|exe|msi|rpm|deb|dmg|tar|tgz|tbz|bz2|xz|gz|Z|zst|asc|sig|metadata)$", re.IGNORECASE)
_LISTING = re.compile(r"\b(?:links|index|listing)\b", re.IGNORECASE)
# One piece of a page: a comment, a tag or what is between tags. No part can start a match that another gave up on,
# because the page is cut at each "<" first: html.parser takes 29 s for 40 kB of tags that do not end.
_TAG = re.compile(r"(/?)([A-Za-z][^\s/>]*)")
_STOP = re.compile(r">|=\s{0,20}([\"'])")
_ATTRIBUTE = re.compile(r"([^\s/>=\"'][^\s/>=]*)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>\"']+)))?")


def _end_of_tag(text: str, start: int) -> int:
    """The place behind the ``>`` of a tag, 0 if it does not end; one in a quoted value (``">=3.8"``) is not its."""
    while stop := _STOP.search(text, start):
        if stop[1] is None:
            return stop.end()
        start = text.find(stop[1], stop.end()) + 1
        if not start:
            break
    return 0


class _Anchors:
    """Collects them from a page."""

    def __init__(self) -> None:
        self.base: str | None = None
        self.version = "1.0"
        self.anchors: list[Anchor] = []
        self.asks_for_input = False
        self.declared = False
        self.has_text = False
        self.heading = ""
        self._in_heading = self._in_style = False

    def feed(self, text: str) -> None:
        """Read a page, in time linear to its length."""
        from html import unescape  # its names of characters take 3 ms, and most indexes answer in JSON

        start = 0
        while (opened := text.find("<", start)) >= 0:
            self._data(text[start:opened])
            if text.startswith("<!--", opened):
                end, inside = text.find("-->", opened + 4) + 3, ""
                closed = end > 2
            else:
                end = _end_of_tag(text, opened + 1)
                inside, closed = text[opened + 1 : end - 1], end > 0
            if not closed:
                start = opened
                break
            start = end
            if (tag := _TAG.match(inside)) is None:
                continue
            if tag[1]:
                self._end(tag[2].lower())
            else:
                found = _ATTRIBUTE.findall(inside[tag.end() :])
                self._start(tag[2].lower(), {one[0].lower(): unescape(one[1] or one[2] or one[3]) for one in found})
        self._data(text[start:])

    def _start(self, tag: str, values: Anchor) -> None:
        if tag == "a" and values.get("href"):
            self.anchors.append(values)
        elif tag == "base" and self.base is None:
            self.base = values.get("href")
        elif tag == "meta" and values.get("name") == "pypi:repository-version":
            self.version = values.get("content") or self.version
            self.declared = True
        elif tag in ("form", "script", "iframe") or (tag == "meta" and values.get("http-equiv", "") == "refresh"):
            self.asks_for_input = True
        self._in_heading = self._in_heading or tag in ("title", "h1")
        self._in_style = tag == "style"

    def _end(self, tag: str) -> None:
        self._in_heading = self._in_heading and tag not in ("title", "h1")
        self._in_style = False

    def _data(self, data: str) -> None:
        if self._in_heading and len(self.heading) < 1000:
            self.heading += data
        if not self._in_style:
            self.has_text = self.has_text or bool(data.strip())

    @property
    def is_listing(self) -> bool:
        """Whether a page without a usable file is a listing all the same: it says so, or has nothing else on it."""
        if self.asks_for_input:
            return False
        names = ((anchor["href"] or "").partition("#")[0].partition("?")[0] for anchor in self.anchors)
        lists_files = any(_OTHER_FILES.search(name) for name in names)
        return self.declared or lists_files or not self.has_text or _LISTING.search(self.heading) is not None


JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"
ACCEPT = f"{JSON_TYPE}, {HTML_TYPE};q=0.2, text/html;q=0.1"

# PEP 503 allows any hash of hashlib in a fragment; these are the ones that indexes send.
_DIGEST = re.compile(r"(?:^|&)(sha256|sha512|sha384|sha224|sha1|md5|blake2b)=([0-9a-fA-F]+)")


class PageError(ValueError):
    """The document is not a project page that envsolve understands; the text says what it is."""


def read_page(body: bytes, content_type: str, url: str, index: str, name: str) -> Listing:
    """The files of a project page.

    Args:
        body: The document.
        content_type: Its ``Content-Type`` header.
        url: Where it was in the end (after redirects), which relative links start from.
        index: The URL to write into each file.
        name: The project, normalised.

    Raises:
        PageError: Another kind of document, or an API version of another major.
    """
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    if kind == JSON_TYPE:
        return sorted_page(_json_files(body), url, index, name)
    if kind in (HTML_TYPE, "text/html", "application/xhtml+xml"):
        charset = re.search(r"charset=\"?([\w-]+)", parameters)
        try:
            text = body.decode(charset[1] if charset else "utf-8", "replace")
        except LookupError:
            text = body.decode("utf-8", "replace")
        return listing(_html_entries(text, url, declared=kind == HTML_TYPE), url, index, name)
    raise PageError(f"it answered with {kind or 'a document without a content type'} instead of an index page")


class _Meta(msgspec.Struct):
    version: str = msgspec.field(name="api-version", default="1.0")


class _Name(msgspec.Struct, gc=False):
    filename: str


class _Names(msgspec.Struct):
    files: list[_Name]
    meta: _Meta = msgspec.field(default_factory=_Meta)


class _Records(msgspec.Struct):
    files: list[msgspec.Raw]
    meta: _Meta = msgspec.field(default_factory=_Meta)


_decode_names = msgspec.json.Decoder(_Names).decode
_decode_records = msgspec.json.Decoder(_Records).decode
_decode_name = msgspec.json.Decoder(_Name).decode


def _json_files(body: bytes) -> Iterable[tuple[str, Record]]:
    """The names of the files, each with the page's data on it."""
    try:
        page = _decode_records(body)
    except UNREADABLE as error:
        raise PageError(f"its JSON cannot be read: {error}") from None
    _check_version(page.meta.version)
    try:
        names = [file.filename for file in _decode_names(body).files]
    except UNREADABLE:
        return _named(page.files)  # one bad entry fails the fast decoder
    return zip(names, page.files, strict=True)


def _named(records: list[msgspec.Raw]) -> Iterator[tuple[str, Record]]:
    for record in records:
        try:
            yield _decode_name(record).filename, record
        except UNREADABLE:
            continue


def _html_entries(text: str, url: str, *, declared: bool) -> list[Entry]:
    document = _Anchors()
    document.feed(text)
    _check_version(document.version)
    base = safe_join(url, document.base) if document.base else url
    entries = [e for e in (_html_entry(anchor, base or url) for anchor in document.anchors) if e is not None]
    if not entries and not declared and not document.is_listing:
        raise PageError("it answered with a web page that lists no files (a login page, or a captive portal)")
    return entries


def _html_entry(anchor: Anchor, base: str) -> Entry | None:
    href = (anchor["href"] or "").strip()
    place = resolved(href, base)
    if place is None:
        return None
    filename = unquote(basename(urlsplit(place).path))
    if not is_archive(filename):
        return None
    fragment = href.partition("#")[2]
    offered = anchor.get("data-core-metadata", anchor.get("data-dist-info-metadata", "false"))
    return Entry(
        filename=filename,
        url=place,
        hashes={name: digest.lower() for name, digest in _DIGEST.findall(fragment)},
        requires_python=anchor.get("data-requires-python"),
        yanked=(anchor["data-yanked"] or True) if "data-yanked" in anchor else False,
        core_metadata=False if offered == "false" else dict(_DIGEST.findall(offered or "")) or True,
    )


def _check_version(version: str) -> None:
    if version.partition(".")[0] != "1":
        raise PageError(f"it uses version {version[:20]} of the index protocol; this envsolve supports only version 1")
