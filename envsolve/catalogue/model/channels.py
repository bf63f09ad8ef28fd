"""Conda channels, and what projects are called on them."""

from collections.abc import Mapping

import msgspec

from envsolve.catalogue.model.evidence import Citation, Dispute, Evidence


class CondaChannel(msgspec.Struct, frozen=True):
    """A conda channel of which there is more to know than its name.

    Attributes:
        name: As ``conda install -c`` takes it; a pattern where it ends in ``*``: ``nvidia/label/*``.
        addresses: Addresses that mean it, besides its name at anaconda.org.
        says: What it is, in words that go behind its name.
        remedy: What to do about it, in words.
        last: The last version that it has of a package, ``{"pytorch": "2.5.1"}``, where it ended.
        clashes: Channels with which it should not be mixed, by name.
        clash: Why, in words.
    """

    name: str
    says: str
    evidence: Evidence
    source: str
    addresses: tuple[str, ...] = ()
    remedy: str | None = None
    last: Mapping[str, str] = {}
    clashes: tuple[str, ...] = ()
    clash: str | None = None
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


class CondaName(msgspec.Struct, frozen=True):
    """A project whose package on conda-forge has another name than on the package index: ``torch``, ``pytorch``."""

    package: str
    conda: str
    evidence: Evidence
    source: str
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()
