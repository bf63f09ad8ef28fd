"""How a fact is known: evidence levels, sources, and what else was said about it."""

from collections.abc import Mapping
from enum import Enum

import msgspec


class Evidence(str, Enum):
    """How a fact is known, best first."""

    MEASURED = "measured"
    PUBLISHED = "published"
    DOCUMENTED = "documented"
    INFERRED = "inferred"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Evidence).index(self)


class Source(msgspec.Struct, frozen=True, gc=False):
    """Where facts come from: a title, an address where there is a public one, and the date they were read (ISO)."""

    title: str
    date: str
    url: str | None = None


class Citation(msgspec.Struct, frozen=True, gc=False):
    """How one field of a record is known, where that differs from the record as a whole.

    Attributes:
        source: Key into the file's sources.
    """

    evidence: Evidence
    source: str


class Dispute(msgspec.Struct, frozen=True, gc=False):
    """What another source says of a field. The record's own value wins, for the reason given.

    Attributes:
        field: Name of the record's field.
        says: The other value, as that source has it.
        source: Key into the file's sources.
        wins: Why the record's value stands: ``a measurement beats a build script``.
    """

    field: str
    says: str
    evidence: Evidence
    source: str
    wins: str


# Records of how far a diagnosis can be trusted.


class Precision(msgspec.Struct, frozen=True):
    """How often diagnoses that stood on one kind of grounds were right on known reports.

    Attributes:
        grounds: The kind, a value of ``envsolve.diagnose.model.Grounds``.
        right: Reports on which the first diagnosis stood on such grounds and named the right cause.
        of: Reports on which the first diagnosis stood on such grounds.
    """

    grounds: str
    right: int
    of: int
    evidence: Evidence
    source: str


# What wheels say of themselves in their METADATA.


class KnownMetadata(msgspec.Struct, frozen=True, gc=False):
    """The METADATA that wheels of one release have in common, as far as a resolver reads it.

    A file's hash settles its contents: where an index states one of these hashes, this is what the file says.

    Attributes:
        package: Normalised.
        sha256: Of each wheel.
        requires: Requires-Dist lines.
        extras: Provides-Extra, as METADATA spells them.
    """

    package: str
    version: str
    sha256: tuple[str, ...]
    evidence: Evidence
    source: str
    requires: tuple[str, ...] = ()
    requires_python: str | None = None
    extras: tuple[str, ...] = ()
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()
