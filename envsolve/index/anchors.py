"""The links of a page in HTML, and what else tells a listing from a login page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser

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
