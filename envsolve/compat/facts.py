"""The tables of the catalogue that the rules read, as one plain value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Architecture, DriverBranch, Floor, Toolkit, TritonRelease
from envsolve.compat.arch import Arch
from envsolve.compat.code import best_code, libraries_serve
from envsolve.compat.forward import ForwardFacts
from envsolve.compat.verdict import Level, Reason
from envsolve.machine.cc import ComputeCapability


class Facts(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The tables of the catalogue that the rules read; what follows from them for a card is worked out once."""

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

    @cached_property
    def _best(self) -> dict[tuple[tuple[str, ...], ComputeCapability], tuple[Level, Arch | None]]:
        return {}

    @cached_property
    def _libraries(self) -> dict[tuple[str, ComputeCapability], Reason]:
        return {}

    def best_code(self, names: tuple[str, ...], cc: ComputeCapability) -> tuple[Level, Arch | None]:
        """Rules 3 and 4 for a card, whose answer is the same on every machine that has one."""
        if (names, cc) not in self._best:
            self._best[names, cc] = best_code(names, cc, self.architectures)
        return self._best[names, cc]

    def libraries_serve(self, cuda: str, cc: ComputeCapability) -> Reason:
        """Rule 5 for a card, likewise."""
        if (cuda, cc) not in self._libraries:
            self._libraries[cuda, cc] = libraries_serve(cuda, cc, self.toolkits, self.architectures)
        return self._libraries[cuda, cc]
