"""What a reader takes from one line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias

from envsolve.diagnose.report.text import Line
from envsolve.machine.model import HostCompiler, Toolkit


class Trust(IntEnum):
    """How much a line is worth; the higher wins.

    ``HINTED``: an asked-for thing that implies another, the Ubuntu in an image's tag. ``STATED``: a person's words.
    ``IMPLIED``: a path, a file name or an error message. ``PRINTED``: a program printed the very fact. ``USED``: the
    program that failed says what it was using.
    """

    HINTED = 0
    STATED = 1
    IMPLIED = 2
    PRINTED = 3
    USED = 4


class Field(str, Enum):
    """A fact that a machine or an environment has once; the values are the names of ``Machine.sources``."""

    OS = "platform.os"
    ARCH = "platform.arch"
    LIBC = "platform.libc"
    DISTRO = "platform.distro"
    WSL = "platform.wsl"
    CONTAINER = "platform.container"
    JETSON = "platform.jetson"
    DRIVER = "driver.version"
    DRIVER_CUDA = "driver.cuda"
    COMPAT = "driver.compat_libcuda"
    PYTHON = "python"
    TORCH_CUDA = "cuda"
    NVCC = "nvcc"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A field's value."""

    field: Field
    text: str


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the environment; ``version`` None says that it was removed there and then."""

    name: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Card:
    """GPUs of one kind.

    Attributes:
        name: As printed; None where only the capability is told.
        compute_capability: ``8.9``.
        count: How many.
        listing: Identifies the table or list that it stands in, since a machine's cards stand in one; None elsewhere.
        truncated: Whether the name was cut off (``NVIDIA GeForce ...``).
    """

    name: str | None
    compute_capability: str | None = None
    count: int = 1
    memory_mib: int | None = None
    mig: bool | None = None
    listing: int | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Codes:
    """GPU code that torch says it carries."""

    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """A container image's reference."""

    reference: str


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command."""

    text: str


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable."""

    name: str
    value: str


Fact: TypeAlias = "Scalar | Package | Card | Codes | Toolkit | HostCompiler | Image | Command | Variable"


@dataclass(frozen=True, slots=True)
class Observation:
    """A fact, the line that it was read from, and what that is worth."""

    fact: Fact
    line: Line
    trust: Trust
