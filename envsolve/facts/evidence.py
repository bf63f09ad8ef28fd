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
    """Evidence for one field of a record, if it differs from that of the record as a whole.

    Attributes:
        source: Key into the file's sources.
    """

    evidence: Evidence
    source: str


class Dispute(msgspec.Struct, frozen=True, gc=False):
    """The value of a field in another source. The record's own value wins, for the reason given.

    Attributes:
        field: Name of the record's field.
        says: The other value, as that source has it.
        source: Key into the file's sources.
        wins: Why the record's value is used: ``a measurement beats a build script``.
    """

    field: str
    says: str
    evidence: Evidence
    source: str
    wins: str


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence for a fact: everything known about it except its values and its source.

    Attributes:
        cited: How fields are known that are known in another way than the record, by name.
        disputed: What other sources say of its fields.
    """

    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


# Records of how far a diagnosis can be trusted.


class Precision(msgspec.Struct, frozen=True):
    """How often diagnoses on one kind of grounds were right on known reports.

    Attributes:
        grounds: The kind, a value of ``envsolve.diagnose.model.Grounds``.
        right: Reports on which the first diagnosis had such grounds and named the right cause.
        of: Reports on which the first diagnosis had such grounds.
    """

    grounds: str
    right: int
    of: int
    evidence: Evidence
    source: str
