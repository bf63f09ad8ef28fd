"""Direct references: ``name @ https://.../x.whl`` is read like any file, ``name @ git+...`` without its build."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urlsplit

from msgspec import structs
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from envsolve.errors import UsageError
from envsolve.index.address import redact
from envsolve.index.client import IndexClient
from envsolve.index.model import CoreMetadata, IndexFile
from envsolve.resolve.needs import Candidate

if TYPE_CHECKING:
    from envsolve.trees.model import Read, Tree

#: Version of a source tree that only its build knows.
UNREAD = Version("0+unread")
_BLOCK = 1 << 20


class DirectReferences:
    """Candidates for requirements that name an address; each address is read once."""

    def __init__(self, client: IndexClient) -> None:
        self._client = client
        self._trees: dict[str, Read] = {}

    def candidate(self, name: str, url: str, extra: str | None) -> Candidate:
        """The one candidate that an address stands for."""
        version = version_at(url)
        if file_at(url) is None and (said := self._tree(name, url).metadata.version):
            version = _readable(said)
        return Candidate(name, version, extra, url=url)

    def metadata(self, name: str, url: str) -> CoreMetadata:
        """Metadata of the file or the tree at an address; inexact where only its build knows it.

        Raises:
            UsageError: It is another package than the one that was asked for.
        """
        file = self._asked_for(url)
        metadata = self._tree(name, url).metadata if file is None else self._client.metadata(file)
        if canonicalize_name(metadata.name) != name:
            raise UsageError(
                f"{redact(url)} is {metadata.name}, not {name}", hint=f"write '{metadata.name} @ {redact(url)}'"
            )
        return metadata

    def tree(self, name: str, url: str) -> Tree | None:
        """The source tree at an address; None where a file is there."""
        return self._tree(name, url).tree if file_at(url) is None else None

    def file(self, url: str) -> IndexFile | None:
        """The file at an address; one of this machine with its hash."""
        file = self._asked_for(url)
        if file is None or file.hashes or not url.startswith("file:"):
            return file
        digest = hashlib.sha256()
        with self._client.open(file) as opened:
            while block := opened.read(_BLOCK):
                digest.update(block)
        return structs.replace(file, hashes={"sha256": digest.hexdigest()})

    def _asked_for(self, url: str) -> IndexFile | None:
        file = file_at(url)
        return structs.replace(file, url=self._client.without_login(file.url)) if file else None

    def _tree(self, name: str, url: str) -> Read:
        if url not in self._trees:
            from envsolve.trees.read import read_tree  # child processes: not for a request without trees

            self._trees[url] = read_tree(name, url, offline=self._client.offline)
        return self._trees[url]


def _readable(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return UNREAD


def file_at(url: str) -> IndexFile | None:
    """The wheel or sdist that an address names; None for a version-control address or a folder."""
    address, fragment = urldefrag(url)
    filename = unquote(urlsplit(address).path.rsplit("/", 1)[-1])
    if url.startswith(("git+", "hg+", "svn+", "bzr+")) or not filename.endswith((".whl", ".tar.gz", ".zip")):
        return None
    algorithm, _, digest = fragment.partition("=")
    hashes = {algorithm: digest} if algorithm in ("sha256", "sha384", "sha512") and digest else {}
    return IndexFile(filename, address, "", hashes)


def version_at(url: str) -> Version:
    """The version in the address's file name; :data:`UNREAD` where it has none."""
    file = file_at(url)
    if file is None:
        return UNREAD
    try:
        if file.filename.endswith(".whl"):
            return parse_wheel_filename(file.filename)[1]
        return parse_sdist_filename(file.filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return UNREAD
