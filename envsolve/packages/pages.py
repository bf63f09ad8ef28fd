"""Project pages: PEP 691 JSON and PEP 503 HTML, with PEP 592, 629, 658, 700 and 714, into listings. Pure.

An index page is foreign input. An entry that cannot be read, that is no wheel or source archive, or that points where
no index may point (a local file from a remote page) is left out; the rest of the page stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from posixpath import basename
from urllib.parse import unquote, urlsplit

import msgspec

from envsolve.packages.listing import (
    UNREADABLE,
    Entry,
    Listing,
    Record,
    is_archive,
    listing,
    resolved,
    safe_join,
    sorted_page,
)

# The links of a page in HTML, and what else tells a listing from a login page.


Anchor = Mapping[str, str | None]
"""The attributes of one link that has an address."""

# What older projects have on their pages besides, and tools add beside a file.
_OTHER_FILES = re.compile(r"\.(?:egg|exe|msi|rpm|deb|dmg|tar|tgz|tbz|bz2|xz|gz|Z|zst|asc|sig|metadata)$", re.IGNORECASE)
_LISTING = re.compile(r"\b(?:links|index|listing)\b", re.IGNORECASE)


class _Anchors(HTMLParser):
    """Collects them while it is fed."""

    def __init__(self) -> None:
        super().__init__()
        self.base: str | None = None
        self.version = "1.0"
        self.anchors: list[Anchor] = []
        self.asks_for_input = False
        self.declared = False
        self.has_text = False
        self.heading = ""
        self._in_heading = self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
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

    def handle_endtag(self, tag: str) -> None:
        self._in_heading = self._in_heading and tag not in ("title", "h1")
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self.heading += data
        if not self._in_style:
            self.has_text = self.has_text or not data.isspace()

    @property
    def is_listing(self) -> bool:
        """Whether a page without a usable file is a listing all the same: it says so, or has nothing else on it."""
        if self.asks_for_input:
            return False
        names = ((anchor["href"] or "").partition("#")[0].partition("?")[0] for anchor in self.anchors)
        lists_files = any(_OTHER_FILES.search(name) for name in names)
        return self.declared or lists_files or not self.has_text or _LISTING.search(self.heading) is not None


def read_anchors(text: str) -> _Anchors:
    """Read a whole page."""
    document = _Anchors()
    document.feed(text)
    document.close()
    return document


JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"
ACCEPT = f"{JSON_TYPE}, {HTML_TYPE};q=0.2, text/html;q=0.1"

# PEP 503 allows any hash of hashlib in a fragment; these are the ones that indexes send.
_DIGEST = re.compile(r"(?:^|&)(sha256|sha512|sha384|sha224|sha1|md5|blake2b)=([0-9a-fA-F]+)")


class PageError(ValueError):
    """The document is no project page that this version understands; the text says what it is."""


def read_page(body: bytes, content_type: str, url: str, index: str, name: str) -> Listing:
    """The files of a project page.

    Args:
        body: The document.
        content_type: Its ``Content-Type`` header.
        url: Where it was in the end (after redirects), which relative links start from.
        index: The address to write into each file.
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
    raise PageError(f"it answered with {kind or 'a document of no stated type'} instead of an index page")


# --- JSON ---------------------------------------------------------------------------------------------------------


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
    """The names of the files, each with what the page says of it."""
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


# --- HTML ---------------------------------------------------------------------------------------------------------


def _html_entries(text: str, url: str, *, declared: bool) -> list[Entry]:

    document = read_anchors(text)
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


# --- both ---------------------------------------------------------------------------------------------------------


def _check_version(version: str) -> None:
    if version.partition(".")[0] != "1":
        raise PageError(f"it speaks version {version[:20]} of the index protocol; this envsolve reads version 1")
