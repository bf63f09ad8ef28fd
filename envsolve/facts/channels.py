"""Conda channels, and what projects are called on them."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from envsolve.facts.evidence import Citation, Dispute, Evidence


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


# Builds of packages on conda channels.


class CondaBuild(msgspec.Struct, frozen=True):
    """One build of a package on a conda channel, for several Pythons.

    Attributes:
        channel: ``conda-forge`` or ``pytorch``.
        subdir: ``linux-64``, ``linux-aarch64``, ``win-64``.
        build: Pattern of its build strings as a match spec takes it, ``cuda129_*``.
        number: Build number of the recipe. conda-forge adds 200 to it for CUDA and 100 for MKL.
        pythons: Python versions, ``3.12``; empty where they are not known.
        cuda: CUDA version that it is built with; None for a CPU build.
        code: SASS and PTX, written as for :class:`envsolve.facts.builds.Build`.
        libc: The libc that it asks for, ``glibc 2.17``.
        triton: The Triton version that it depends on.
        arm: Whether an aarch64 build is for servers (``sbsa``) or for Jetson (``tegra``).
        depends: Dependencies that decide where it installs: ``__cuda``, ``cuda-version >=12.9,<13``.
        constrains: Its run constraints.
        released: ISO date of the recipe's change.
    """

    package: str
    version: str
    channel: str
    subdir: str
    build: str
    number: int
    evidence: Evidence
    source: str
    pythons: tuple[str, ...] = ()
    cuda: str | None = None
    code: tuple[str, ...] | None = None
    libc: str | None = None
    triton: str | None = None
    arm: Literal["sbsa", "tegra"] | None = None
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    released: str | None = None
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


# Container images, what their drivers must be, and the distributions that they stand on.


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
