"""Container images, what their drivers must be, and the distributions that they stand on."""

from collections.abc import Mapping

import msgspec

from envsolve.catalogue.model.evidence import Citation, Dispute, Evidence


class Image(msgspec.Struct, frozen=True):
    """The container images of one release on one distribution.

    Attributes:
        repository: ``nvidia/cuda``, ``pytorch/pytorch`` or ``python``.
        version: First part of the tags: the version of the toolkit (``12.9.1``), of torch, or of Python (``3.12``).
        kinds: Middle parts of the tags: ``base``, ``runtime``, ``cudnn-devel``, ``cuda12.6-cudnn9-runtime``.
        cuda: Toolkit version inside; empty where the kinds say it, and where there is none.
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
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()

    @property
    def tags(self) -> tuple[str, ...]:
        """The whole tags, ``12.9.1-cudnn-devel-ubuntu22.04``."""
        return tuple("-".join(filter(None, (self.version, kind, self.distribution))) for kind in self.kinds)


class OlderDrivers(msgspec.Struct, frozen=True):
    """Driver branches that are accepted with cards of some brands: there the image's compat ``libcuda`` may serve.

    Attributes:
        brands: As the container runtime names them, ``tesla``.
    """

    brands: tuple[str, ...]
    branches: tuple[str, ...]


class ImageRequirement(msgspec.Struct, frozen=True):
    """``NVIDIA_REQUIRE_CUDA`` of the ``nvidia/cuda`` images of one toolkit release, as most of them have it.

    Attributes:
        version: Toolkit release in the tags, ``12.9.1``.
        cuda: The container runtime starts the image where the driver reports this CUDA version or a newer one, ...
        or_drivers: ... or where one of these holds.
    """

    version: str
    cuda: str
    evidence: Evidence
    source: str
    or_drivers: tuple[OlderDrivers, ...] = ()
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


class Distribution(msgspec.Struct, frozen=True):
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
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()
