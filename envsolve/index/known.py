"""What the catalogue says of files, by their hashes, and of the newest release of a package that it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from envsolve.catalogue.model import KnownMetadata
from envsolve.index.model import CoreMetadata


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
