"""Drivers, GPUs and architectures."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from envsolve.catalogue.model.evidence import Citation, Dispute, Evidence


class Floor(msgspec.Struct, frozen=True):
    """Oldest driver that runs a CUDA family through minor-version compatibility.

    Attributes:
        first: First CUDA version of the range, ``11.1``.
        last: Last CUDA version of the range, inclusive; None for the whole rest of the major.
        linux: Driver version; ``windows`` likewise.
    """

    first: str
    last: str | None
    linux: str
    windows: str | None
    evidence: Evidence
    source: str


class DriverBranch(msgspec.Struct, frozen=True):
    """A driver branch: the CUDA version and PTX ISA it supports, and its life.

    Attributes:
        first: The earliest release known, a bare branch number where none is.
        kind: NVIDIA's data-centre branch type.
        end_of_life: ISO date (or month) on which NVIDIA ends or ended its support, for data-centre branches.
    """

    branch: str
    cuda: str
    ptx_isa: str
    first: str
    evidence: Evidence
    source: str
    lts: bool = False
    kind: Literal["production", "lts", "new-feature"] | None = None
    end_of_life: str | None = None
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


class GpuModel(msgspec.Struct, frozen=True):
    """A GPU as people name it.

    Attributes:
        data_centre: Whether it is one on which NVIDIA supports forward compatibility (rule 8).
        first_driver: Lowest Linux driver version whose release notes say that it supports the card. A beta, or the
            driver of a CUDA toolkit, may have run it some weeks before; and branches overlap in time, so that a higher
            version that is older than the card may not know it. So no rule refuses a driver for this.
        listed_in: Where no such notes are known, the lowest version whose own list of GPUs has the card.
        pci_ids: PCI device ids (vendor 10de), lower-case hexadecimal: ``2684``.
    """

    name: str
    compute_capability: str
    evidence: Evidence
    source: str
    aliases: tuple[str, ...] = ()
    data_centre: bool = False
    first_driver: str | None = None
    listed_in: str | None = None
    pci_ids: tuple[str, ...] = ()
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


class Architecture(msgspec.Struct, frozen=True):
    """Life of a compute capability: the first driver branch that knows it and the last that still serves it.

    Attributes:
        island: True for Tegra parts whose code neither serves nor is served by desktop parts of the same major.
    """

    compute_capability: str
    name: str
    first_driver: str | None
    last_branch: str | None
    evidence: Evidence
    source: str
    island: bool = False
    alias_of: str | None = None
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()
