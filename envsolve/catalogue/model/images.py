"""Container images, what their drivers must be, and the distributions that they stand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envsolve.catalogue.model.evidence import Citation, Dispute, Evidence


@dataclass(frozen=True, slots=True)
class Image:
    """The container images of one release on one distribution.

    Attributes:
        repository: ``nvidia/cuda`` or ``pytorch/pytorch``.
        version: First part of the tags: the toolkit's version (``12.9.1``) or torch's.
        kinds: Middle parts of the tags: ``base``, ``runtime``, ``cudnn-devel``, ``cuda12.6-cudnn9-runtime``.
        cuda: Toolkit version inside; empty where the kinds say it.
        distribution: Last part of the tags and key of ``distributions.json``, ``ubuntu22.04``; empty where tags
            end with the kind.
        cudnn: cuDNN in the kinds that have it, ``9.8.0``; None where it is not known.
        architectures: ``x86_64``, ``aarch64``.
        retired: Whether its publisher has retired it: such tags get deleted.
    """

    repository: str
    version: str
    kinds: tuple[str, ...]
    evidence: Evidence
    source: str
    cuda: str = ""
    distribution: str = ""
    cudnn: str | None = None
    architectures: tuple[str, ...] = ()
    retired: bool = False
    cited: Mapping[str, Citation] = field(default_factory=dict)
    disputed: tuple[Dispute, ...] = ()

    @property
    def tags(self) -> tuple[str, ...]:
        """The whole tags, ``12.9.1-cudnn-devel-ubuntu22.04``."""
        return tuple("-".join(filter(None, (self.version, kind, self.distribution))) for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class ImageRequirement:
    """``NVIDIA_REQUIRE_CUDA`` of the ``nvidia/cuda`` images of one toolkit release.

    The container runtime starts the image where the driver reports that CUDA version, or where the card is of one of
    ``brands`` and the driver of one of ``branches``: on those the compat ``libcuda`` in the image may serve (rule 8).

    Attributes:
        cuda: ``12.9``: the condition ``cuda>=12.9``.
    """

    version: str
    cuda: str
    evidence: Evidence
    source: str
    branches: tuple[str, ...] = ()
    brands: tuple[str, ...] = ()
    cited: Mapping[str, Citation] = field(default_factory=dict)
    disputed: tuple[Dispute, ...] = ()


@dataclass(frozen=True, slots=True)
class Distribution:
    """A release of a Linux distribution.

    Attributes:
        name: As image tags write it, ``ubuntu22.04``.
        libc: ``glibc 2.35``.
        python: Version of its own ``python3``; ``gcc`` is the major of its own gcc.
    """

    name: str
    evidence: Evidence
    source: str
    libc: str | None = None
    python: str | None = None
    gcc: int | None = None
    cited: Mapping[str, Citation] = field(default_factory=dict)
    disputed: tuple[Dispute, ...] = ()
