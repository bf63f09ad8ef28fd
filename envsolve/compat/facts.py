"""The tables of the catalogue that the rules read, as one plain value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Architecture, DriverBranch, Floor, Toolkit, TritonRelease
from envsolve.compat.forward import ForwardFacts


@dataclass(frozen=True, slots=True)
class Facts:
    """The tables of the catalogue that the rules read."""

    toolkits: Sequence[Toolkit]
    floors: Sequence[Floor]
    architectures: Mapping[str, Architecture]
    tritons: Mapping[str, TritonRelease]
    drivers: Sequence[DriverBranch]
    forward: ForwardFacts

    @classmethod
    def of(cls, catalogue: Catalogue) -> Facts:
        """Take the tables out of a catalogue."""
        tritons = {release.version: release for release in catalogue.tritons}
        return cls(
            catalogue.toolkits,
            catalogue.floors,
            catalogue.architectures,
            tritons,
            catalogue.drivers,
            ForwardFacts(catalogue),
        )
