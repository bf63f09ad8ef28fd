"""What wheels say of themselves in their METADATA."""

from collections.abc import Mapping

import msgspec

from envsolve.catalogue.model.evidence import Citation, Dispute, Evidence


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
