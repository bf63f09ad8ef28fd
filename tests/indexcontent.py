"""The content of the loopback index: files, and the pages that list them."""

from __future__ import annotations

import hashlib
import html
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from packaging.utils import canonicalize_name

from tests.distributions import make_sdist, make_wheel, sdist_filename, wheel_filename

if TYPE_CHECKING:
    from tests.indexserver import IndexServer

Style = Literal["both", "json", "html", "pytorch"]


@dataclass
class Entry:
    """A file on a project page. ``url`` overrides where the page points (another host, say)."""

    filename: str
    content: bytes
    url: str
    requires_python: str | None = None
    yanked: str | None = None
    upload_time: str | None = None
    metadata: bytes | None = None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass
class Index:
    """One index under a path of the server.

    Attributes:
        style: ``both`` negotiates; ``pytorch`` is HTML with root-relative links, and S3's 403 for what is not there.
        metadata: Whether it offers ``.metadata`` files (PEP 658).
        ranges: Whether its files can be read in parts.
        hashes: Whether its pages give digests.
        etag: Whether its pages have an ETag and answer conditional requests.
        cache_control: The pages' Cache-Control header.
        auth: User and password that it asks for.
    """

    server: IndexServer
    path: str
    style: Style = "both"
    metadata: bool = True
    ranges: bool = True
    hashes: bool = True
    etag: bool = True
    cache_control: str | None = "max-age=600, public"
    auth: tuple[str, str] | None = None
    projects: dict[str, list[Entry]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.server.url + self.path

    @property
    def url_with_login(self) -> str:
        assert self.auth is not None
        return self.url.replace("://", "://{}:{}@".format(*(quote(part, safe="") for part in self.auth)))

    def address(self, entry: Entry) -> str:
        """Where a file of this index is had."""
        return self.server.url + entry.url

    def add(
        self,
        name: str,
        filename: str,
        content: bytes,
        *,
        requires_python: str | None = None,
        yanked: str | None = None,
        upload_time: str | None = None,
        url: str | None = None,
    ) -> Entry:
        link = url or f"{self.path}-files/{quote(filename)}"
        metadata = _wheel_metadata(content) if filename.endswith(".whl") else None
        entry = Entry(filename, content, link, requires_python, yanked, upload_time, metadata)
        self.projects.setdefault(canonicalize_name(name), []).append(entry)
        return entry

    def wheel(
        self,
        name: str,
        version: str,
        *,
        requires: Sequence[str] = (),
        tags: str = "py3-none-any",
        requires_python: str | None = None,
        extras: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        yanked: str | None = None,
        upload_time: str | None = None,
        url: str | None = None,
    ) -> Entry:
        content = make_wheel(
            name, version, requires=requires, tags=tags, requires_python=requires_python, extras=extras, files=files
        )
        return self.add(
            name,
            wheel_filename(name, version, tags),
            content,
            requires_python=requires_python,
            yanked=yanked,
            upload_time=upload_time,
            url=url,
        )

    def sdist(
        self,
        name: str,
        version: str,
        *,
        requires: Sequence[str] = (),
        requires_python: str | None = None,
        metadata_version: str = "2.2",
        dynamic: Sequence[str] = (),
        requires_txt: str | None = None,
        padding: int = 0,
        upload_time: str | None = None,
    ) -> Entry:
        content = make_sdist(
            name,
            version,
            requires=requires,
            requires_python=requires_python,
            metadata_version=metadata_version,
            dynamic=dynamic,
            requires_txt=requires_txt,
            padding=padding,
        )
        filename = sdist_filename(name, version)
        return self.add(name, filename, content, requires_python=requires_python, upload_time=upload_time)

    def json_page(self, name: str) -> bytes:
        files = []
        for entry in self.projects[name]:
            described: dict[str, object] = {"filename": entry.filename, "url": entry.url, "size": len(entry.content)}
            described["hashes"] = {"sha256": entry.sha256} if self.hashes else {}
            described["yanked"] = False if entry.yanked is None else entry.yanked or True
            if entry.requires_python:
                described["requires-python"] = entry.requires_python
            if entry.upload_time:
                described["upload-time"] = entry.upload_time
            if self.metadata and entry.metadata is not None:
                described["core-metadata"] = {"sha256": hashlib.sha256(entry.metadata).hexdigest()}
            files.append(described)
        return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": files}).encode()

    def html_page(self, name: str) -> bytes:
        lines = []
        for entry in self.projects[name]:
            attributes = {"href": entry.url + (f"#sha256={entry.sha256}" if self.hashes else "")}
            if entry.requires_python:
                attributes["data-requires-python"] = entry.requires_python
            if entry.yanked is not None:
                attributes["data-yanked"] = entry.yanked
            if self.metadata and entry.metadata is not None:
                digest = f"sha256={hashlib.sha256(entry.metadata).hexdigest()}"
                attributes["data-dist-info-metadata"] = digest
                if self.style != "pytorch":
                    attributes["data-core-metadata"] = digest
            text = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
            lines.append(f"    <a {text}>{html.escape(entry.filename)}</a><br/>")
        head = "" if self.style == "pytorch" else '<head><meta name="pypi:repository-version" content="1.1"></head>'
        body = f"  <body>\n    <h1>Links for {name}</h1>\n" + "\n".join(lines) + "\n  </body>"
        return f"<!DOCTYPE html>\n<html>{head}\n{body}\n</html>\n".encode()


def _wheel_metadata(content: bytes) -> bytes | None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return next((archive.read(n) for n in archive.namelist() if n.endswith(".dist-info/METADATA")), None)
    except zipfile.BadZipFile:
        return None
