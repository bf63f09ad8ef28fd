"""Project pages: PEP 691 JSON and PEP 503 HTML, with PEP 592, 629, 658, 700 and 714, into ``IndexFile`` values. Pure.

An index page is foreign input. An entry that cannot be read, that is no wheel or source archive, or that points where
no index may point (a local file from a remote page) is left out; the rest of the page stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from posixpath import basename
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from envsolve.index.lenient import specifier_text
from envsolve.index.model import IndexFile

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"
ACCEPT = f"{JSON_TYPE}, {HTML_TYPE};q=0.2, text/html;q=0.1"

_ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz")
# What older projects have on their pages besides, and tools add beside a file.
_OTHER_FILES = re.compile(r"\.(?:egg|exe|msi|rpm|deb|dmg|tar|tgz|tbz|bz2|xz|gz|Z|zst|asc|sig|metadata)$", re.IGNORECASE)
_LISTING = re.compile(r"\b(?:links|index|listing)\b", re.IGNORECASE)
_DIGEST = re.compile(r"(?:^|&)(sha256|sha512|sha384|sha224|sha1|md5|blake2b)=([0-9a-fA-F]+)")


class PageError(ValueError):
    """The document is no project page that this version understands; the text says what it is."""


def parse_page(body: bytes, content_type: str, url: str, index: str) -> tuple[IndexFile, ...]:
    """The files of a project page.

    Args:
        body: The document.
        content_type: Its ``Content-Type`` header.
        url: Where it was in the end (after redirects), which relative links start from.
        index: The address to write into each file.

    Raises:
        PageError: Another kind of document, or an API version of another major.
    """
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    if kind == JSON_TYPE:
        return _json_files(body, url, index)
    if kind in (HTML_TYPE, "text/html", "application/xhtml+xml"):
        charset = re.search(r"charset=\"?([\w-]+)", parameters)
        try:
            text = body.decode(charset[1] if charset else "utf-8", "replace")
        except LookupError:
            text = body.decode("utf-8", "replace")
        return _html_files(text, url, index, declared=kind == HTML_TYPE)
    raise PageError(f"it answered with {kind or 'a document of no stated type'} instead of an index page")


# --- JSON ---------------------------------------------------------------------------------------------------------


class _Meta(msgspec.Struct):
    version: str = msgspec.field(name="api-version", default="1.0")


class _Entry(msgspec.Struct, rename="kebab"):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    requires_python: str | None = None
    yanked: bool | str = False
    upload_time: str | None = None
    size: int | None = None
    core_metadata: bool | dict[str, str] | None = None
    dist_info_metadata: bool | dict[str, str] | None = None


class _Page(msgspec.Struct):
    files: list[_Entry]
    meta: _Meta = msgspec.field(default_factory=_Meta)


class _LoosePage(msgspec.Struct):
    files: list[msgspec.Raw]
    meta: _Meta = msgspec.field(default_factory=_Meta)


# RecursionError: msgspec's answer to a document nested without end.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode_page = msgspec.json.Decoder(_Page).decode
_decode_loose_page = msgspec.json.Decoder(_LoosePage).decode
_decode_entry = msgspec.json.Decoder(_Entry).decode


def _json_files(body: bytes, url: str, index: str) -> tuple[IndexFile, ...]:
    try:
        page: _Page | _LoosePage = _decode_page(body)
    except _UNREADABLE:
        # One bad entry fails the fast decoder; the slow one tells the good from the bad.
        try:
            page = _decode_loose_page(body)
        except _UNREADABLE as error:
            raise PageError(f"its JSON cannot be read: {error}") from None
    _check_version(page.meta.version)
    entries = page.files if isinstance(page, _Page) else _readable(page.files)
    files = (_json_file(entry, url, index) for entry in entries)
    return tuple(f for f in files if f is not None)


def _json_file(entry: _Entry, url: str, index: str) -> IndexFile | None:
    filename = entry.filename
    place = _place(entry.url, url)
    if place is None or "/" in filename or not filename.lower().endswith(_ARCHIVES):
        return None
    metadata = entry.core_metadata
    if metadata is None:
        metadata = entry.dist_info_metadata
    yanked = entry.yanked
    return IndexFile(
        filename,
        place,
        index,
        entry.hashes,
        specifier_text(entry.requires_python),
        None if yanked is False else "" if yanked is True else yanked,
        entry.upload_time,
        entry.size,
        metadata if isinstance(metadata, dict) else {} if metadata else None,
    )


def _readable(entries: list[msgspec.Raw]) -> Iterator[_Entry]:
    for raw in entries:
        try:
            yield _decode_entry(raw)
        except _UNREADABLE:
            continue


# --- HTML ---------------------------------------------------------------------------------------------------------


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.base: str | None = None
        self.version = "1.0"
        self.anchors: list[Mapping[str, str | None]] = []
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


def _html_files(text: str, url: str, index: str, *, declared: bool) -> tuple[IndexFile, ...]:
    document = _Anchors()
    document.feed(text)
    document.close()
    _check_version(document.version)
    base = _safe_join(url, document.base) if document.base else url
    files = [f for f in (_html_file(anchor, base or url, index) for anchor in document.anchors) if f is not None]
    if not files and not declared and not document.is_listing:
        raise PageError("it answered with a web page that lists no files (a login page, or a captive portal)")
    return tuple(files)


def _html_file(anchor: Mapping[str, str | None], base: str, index: str) -> IndexFile | None:
    href = (anchor["href"] or "").strip()
    place = _place(href, base)
    if place is None:
        return None
    filename = unquote(basename(urlsplit(place).path))
    if "/" in filename or not filename.lower().endswith(_ARCHIVES):
        return None
    fragment = href.partition("#")[2]
    offered = anchor.get("data-core-metadata", anchor.get("data-dist-info-metadata", "false"))
    return IndexFile(
        filename=filename,
        url=place,
        index=index,
        hashes={name: digest.lower() for name, digest in _DIGEST.findall(fragment)},
        requires_python=specifier_text(anchor.get("data-requires-python")),
        yanked=(anchor["data-yanked"] or "") if "data-yanked" in anchor else None,
        metadata_hashes=None if offered == "false" else dict(_DIGEST.findall(offered or "")),
    )


# --- both ---------------------------------------------------------------------------------------------------------


def _check_version(version: str) -> None:
    if version.partition(".")[0] != "1":
        raise PageError(f"it speaks version {version[:20]} of the index protocol; this envsolve reads version 1")


def _place(link: str, base: str) -> str | None:
    """A link's absolute address without fragment; None for one that a page at ``base`` may not give."""
    link = link.partition("#")[0]
    if link.startswith(("https://", "http://")) and "[" not in link:  # an IPv6 address may be a broken one
        return link
    place = _safe_join(base, link)
    if place is None or not place.startswith(("https://", "http://", "file://")):
        return None
    if place.startswith("file:") and not base.startswith("file:"):
        return None
    return place


def _safe_join(base: str, link: str) -> str | None:
    try:
        joined = urljoin(base, link)
        urlsplit(joined)
    except ValueError:
        return None
    return joined
