"""What an index says: files of a project, and the core metadata of one file."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


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
