"""Direct references: ``name @ https://.../x.whl`` is read like any file, ``name @ git+...`` is taken unread."""

from __future__ import annotations

from urllib.parse import unquote, urldefrag, urlsplit

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from envsolve.index.client import IndexClient
from envsolve.index.model import CoreMetadata, IndexFile
from envsolve.resolve.needs import Candidate

#: Version of a source tree that was not fetched.
UNREAD = Version("0+unread")


class DirectReferences:
    """Candidates for requirements that name an address."""

    def __init__(self, client: IndexClient) -> None:
        self._client = client

    def candidate(self, name: str, url: str, extra: str | None) -> Candidate:
        """The one candidate that an address stands for."""
        return Candidate(name, version_at(url), extra, url=url)

    def metadata(self, name: str, url: str) -> CoreMetadata:
        """Metadata of the file at an address; of a source tree, that nothing of it is known."""
        file = file_at(url)
        if file is None:
            return CoreMetadata(name, str(UNREAD), exact=False)
        return self._client.metadata(file)


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
