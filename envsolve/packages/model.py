"""What an index says: files of a project, and the core metadata of one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import msgspec

from envsolve.errors import IndexUnavailableError
from envsolve.facts.evidence import KnownMetadata


class IndexFile(msgspec.Struct, frozen=True, gc=False):
    """One file on a project page (PEP 503 / 691 / 700).

    Attributes:
        filename: Percent-decoded file name.
        url: Absolute address without fragment.
        hashes: Algorithm to hex digest, as the page gives them.
        requires_python: A specifier that packaging can read, or None.
        yanked: Reason (may be empty) where yanked, else None.
        upload_time: ISO 8601, or None where the index does not say.
        size: Bytes, or None.
        metadata_hashes: Hashes of the ``.metadata`` sibling (PEP 658), possibly empty; None where it is not offered.
        index: Address of the index that listed it, without credentials.
    """

    filename: str
    url: str
    index: str
    hashes: Mapping[str, str] = {}
    requires_python: str | None = None
    yanked: str | None = None
    upload_time: str | None = None
    size: int | None = None
    metadata_hashes: Mapping[str, str] | None = None


class CoreMetadata(msgspec.Struct, frozen=True):
    """The part of METADATA that a resolver needs.

    Attributes:
        name: As the file spells it.
        version: As the file spells it.
        requires_dist: Requirement lines that packaging can read.
        requires_python: A specifier that packaging can read, or None.
        provides_extra: Extras as the file spells them.
        exact: False where an sdist's PKG-INFO marks its dependencies dynamic, so that they are only the best guess.
    """

    name: str
    version: str
    requires_dist: tuple[str, ...] = ()
    requires_python: str | None = None
    provides_extra: tuple[str, ...] = ()
    exact: bool = True


# What can go wrong with an index, told apart where it matters who may answer instead.


class DeniedError(IndexUnavailableError):
    """The host answered 401 or 403.

    Attributes:
        may_mean_absent: It is the answer that object stores give for a missing file to a reader who may not list the
            bucket: it cannot be told from a real denial.
    """

    def __init__(self, message: str, *, hint: str | None, may_mean_absent: bool) -> None:
        super().__init__(message, hint=hint)
        self.may_mean_absent = may_mean_absent


class MetadataUnavailableError(IndexUnavailableError):
    """One file's metadata cannot be had: the file is damaged, gone, or not what its name says."""


class MissingFileError(MetadataUnavailableError):
    """The index lists a file that its host does not have."""


# What the catalogue says of files, by their hashes, and of the newest release of a package that it knows.


class KnownFiles:
    """Thread-safe. The catalogue is read when something is asked first: a run that the cache answers asks nothing."""

    def __init__(self, records: Callable[[], Sequence[KnownMetadata]]) -> None:
        """Args: records: Reads them; those of a package stand together, the newest release last."""
        self._records = records

    @cached_property
    def _by_hash(self) -> Mapping[str, KnownMetadata]:
        return {digest: record for record in self._records() for digest in record.sha256}

    @cached_property
    def _newest(self) -> Mapping[str, KnownMetadata]:
        return {record.package: record for record in self._records()}

    def metadata(self, digest: str) -> CoreMetadata | None:
        """The metadata of a file of this SHA-256; None where it is not known."""
        record = self._by_hash.get(digest)
        if record is None:
            return None
        return CoreMetadata(record.package, record.version, record.requires, record.requires_python, record.extras)

    def requires(self, package: str) -> tuple[str, ...]:
        """Requires-Dist lines of the newest release that is known: what the package is likely to need."""
        record = self._newest.get(package)
        return record.requires if record else ()
