"""What conda planning works with: what is asked, what a machine offers, what a channel has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spec:
    """One match spec, read.

    Attributes:
        name: Package name as conda-forge has it.
        version: Version spec, ``>=2.5,<2.8``, ``2.7.*``; None for any.
        build: Pattern of the build string, ``cuda129*``; None for any.
        channel: The channel that it must come from; None for any.
        origin: Where it stands: ``command line``, ``environment.yml``.
    """

    name: str
    version: str | None = None
    build: str | None = None
    channel: str | None = None
    origin: str = "command line"

    def __str__(self) -> str:
        """The match spec: ``pytorch >=2.5 cuda*``."""
        name = f"{self.channel}::{self.name}" if self.channel else self.name
        if self.build:
            return f"{name} {self.version or '*'} {self.build}"
        return f"{name} {self.version}" if self.version else name


@dataclass(frozen=True, slots=True)
class CondaAsked:
    """All that is asked of a conda plan.

    Attributes:
        specs: What must be in it.
        constraints: What holds of a package if something else brings it in.
        pip: Requirements that pip is to install on top, in PEP 508.
        channels: Channels that the inputs name, the preferred first.
        notes: What was understood and set aside, in words.
    """

    specs: tuple[Spec, ...] = ()
    constraints: tuple[Spec, ...] = ()
    pip: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VirtualPackage:
    """What a solver takes a machine to have.

    Attributes:
        assumed: Why it had to be assumed, in words; None where the machine says it.
    """

    name: str
    version: str
    build: str = "0"
    assumed: str | None = None

    def __str__(self) -> str:
        """``12.4``, or ``1=x86_64`` where the build string tells something."""
        return self.version if self.build == "0" else f"{self.version}={self.build}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One package file of a channel.

    Attributes:
        number: Build number.
        depends: Match specs of its dependencies.
        channel: The channel's address.
        hashes: ``sha256`` and ``md5``, where the channel gives them.
        size: Bytes.
    """

    name: str
    version: str
    build: str
    number: int
    subdir: str
    channel: str
    url: str
    filename: str
    depends: tuple[str, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of its dependencies, virtual packages among them."""
        return tuple(dict.fromkeys(line.split()[0].split("[")[0] for line in self.depends))
