"""The observations that readers take from the lines of a report, and how a reader is declared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from packaging.utils import canonicalize_name

from envsolve.diagnose.report.text import Line, Log
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import HostCompiler, Toolkit
from envsolve.values import ComputeCapability, CudaVersion, processor


class Trust(IntEnum):
    """How reliable an observation is; the higher wins.

    ``HINTED``: something implies another thing, as the tag of an image implies Ubuntu. ``STATED``: a person's words.
    ``IMPLIED``: a path, a file name or an error message. ``PRINTED``: a program printed the fact. ``USED``: the
    program that failed reports what it used.
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
    """A package of the environment; a ``version`` of None means that it was removed at this line."""

    name: str
    version: str | None


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """GPUs of one kind.

    Attributes:
        name: As printed; None if the report gives only the capability.
        compute_capability: ``8.9``.
        count: How many.
        listing: Number of the table or list that it is in, because one list holds all GPUs of a machine; None for the
            line's own.
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
    """GPU code that torch reports to contain."""

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


Fact: TypeAlias = "Scalar | Package | GpuGroup | Codes | Toolkit | HostCompiler | Image | Command | Variable"


@dataclass(frozen=True, slots=True)
class Observation:
    """A fact, the line that it was read from, and how reliable that is."""

    fact: Fact
    line: Line
    trust: Trust


# Shapes that several readers look for.

VERSION = (
    r"\d{1,4}(?:\.\d{1,8}){1,4}(?:(?:a|b|rc|\.?post|\.?dev)\d{1,8}){0,2}"
    r"(?:\+[A-Za-z0-9]{1,40}(?:[._][A-Za-z0-9]{1,40}){0,6})?"
)
"""A package's version with at least two numbers, local part included."""

# Programs, and packages of systems: none of them is a package of an environment.
_NO_PACKAGE = frozenset({"nvidia-smi", "nvidia-driver", "cuda-driver", "cuda-version", "nvidia"})
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s{1,20}(?=[A-Z(\d`*>-])")


def is_related(name: str) -> bool:
    """Whether a normalised name is that of a package that matters to GPUs."""
    return name not in _NO_PACKAGE and shape("{{RELATED}}").fullmatch(name) is not None


def normalised(name: str) -> str:
    """A package's name as installers compare it."""
    return str(canonicalize_name(name))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a line that are about the environment at hand, judged by their words."""
    return (sentence for sentence in _SENTENCE_END.split(text) if not shape("{{ASIDE}}").search(sentence))


# "How could I get it to work on the 5090?"
_WISH = re.compile(r"\b(?:could|would|should)\b", re.IGNORECASE)


def wishes(text: str) -> Iterator[str]:
    """The sentences of a line that are about what somebody wants of the environment at hand."""
    for sentence in _SENTENCE_END.split(text) if _WISH.search(text) else ():
        aside = shape("{{ASIDE}}")
        if aside.search(sentence) and not aside.search(_WISH.sub("", sentence)):
            yield sentence


def clean(name: str) -> str:
    """A GPU's name without what programs print after it."""
    # Pascal is part of a name: there are two kinds of TITAN X.
    for mark in (" (UUID", " (arch", " with ", " - ", ",", ";", " |", " (", "\u00ae"):
        if mark != " (" or not name.endswith(("(Pascal)", "(Pascal) ")):
            name = name.partition(mark)[0]
    return name.strip(" .'\"`*|")


def capability(text: str) -> str:
    """A compute capability, ``8.9``, from ``89``, ``sm_89``, ``8, 9`` or ``8, minor=9``."""
    return str(ComputeCapability.parse(".".join(re.findall(r"\d+", text))))


def _minor(text: str) -> str:
    return str(CudaVersion.parse(text))


def _python(digits: str) -> str:
    return f"{digits[0]}.{digits[1:]}"


def cuda_of_number(text: str) -> str:
    """A CUDA version as the API numbers it: ``12040`` is 12.4."""
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}"


# /etc/nv_tegra_release has "R36 (release), REVISION: 4.0" for 36.4.
_L4T_REVISION = re.compile(r" \(release\), revision: (\d+(?:\.[1-9])?)(?:\.0)?", re.IGNORECASE)
# The named groups that patterns of readers may have; ``_2`` and so on may follow, because names must be unique.
_SCALARS: Mapping[str, tuple[Field, Callable[[str], str]]] = {
    "os": (Field.OS, lambda text: {"win32": "windows"}.get(text.lower(), text.lower())),
    "arch": (Field.ARCH, lambda text: processor(text.replace("-", "_"))),
    "glibc": (Field.LIBC, lambda text: f"glibc {text.replace('_', '.')}"),
    "musl": (Field.LIBC, "musl {}".format),
    "wsl": (Field.WSL, str),
    "container": (Field.CONTAINER, str),
    "jetson": (Field.JETSON, lambda text: _L4T_REVISION.sub(r".\1", text)),
    "driver": (Field.DRIVER, str),
    "driver_cuda": (Field.DRIVER_CUDA, str),
    "driver_number": (Field.DRIVER_CUDA, cuda_of_number),
    "compat": (Field.COMPAT, lambda text: text.replace("-", ".")),
    "python": (Field.PYTHON, str),
    "py": (Field.PYTHON, _python),
    "cuda": (Field.TORCH_CUDA, _minor),
    "cuda_major": (Field.TORCH_CUDA, str),
    "cuda_digits": (Field.TORCH_CUDA, lambda digits: f"{digits[:-1]}.{digits[-1]}"),
    "cuda_none": (Field.TORCH_CUDA, str.lower),
}
_PACKAGES = frozenset({"torch", "triton", "vllm"})
_COMPILERS = frozenset({"gcc", "clang", "msvc"})
# Names of groups must be unique within a pattern.
_REPEATED = re.compile(r"_\d$")


def facts_of(match: re.Match[str]) -> Iterator[Fact]:
    """The facts in the named groups of a match.

    A group is named after the field (``driver``), the package (``torch``), the compiler (``gcc``) or the tool
    (``nvcc``, ``toolkit``) whose version it holds; ``name`` and ``version`` make a package, ``gpu``, ``cc`` and
    ``count`` GPUs.
    """
    return _facts({_REPEATED.sub("", name): value for name, value in match.groupdict().items() if value})


def _facts(groups: Mapping[str, str]) -> Iterator[Fact]:
    for name, value in groups.items():
        if name in _SCALARS:
            field, shape = _SCALARS[name]
            yield Scalar(field, shape(value))
        elif name in _PACKAGES:
            yield Package(name, value)
        elif name in _COMPILERS:
            yield HostCompiler(name, value)
        elif name == "nvcc":
            yield Scalar(Field.NVCC, _minor(value))
            yield Toolkit(_minor(value), None, True)
        elif name == "toolkit":
            yield Toolkit(value, None)
        elif name == "cuda_home":
            yield Variable("CUDA_HOME", value)
        elif name == "name":
            yield Package(normalised(value), groups["version"])
    if "gpu" in groups or "cc" in groups:
        gpu = clean(groups["gpu"]) if "gpu" in groups else None
        cc = capability(groups["cc"]) if "cc" in groups else None
        yield GpuGroup(gpu, cc, max(1, int(groups.get("count", 1))))


class PatternReader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reader of ``patterns.toml``.

    Attributes:
        trust: How reliable a match is: the name of a :class:`Trust`.
        words: Lower-case words; only lines that hold one of them are searched.
        patterns: Regular expressions; their named groups hold facts as :func:`facts_of` describes.
        means: Facts that any match implies, by the names of groups.
        unless: Lines that match this are ignored.
        by_sentence: Search only in sentences about the environment at hand.
    """

    trust: Literal["hinted", "stated", "implied", "printed", "used"]
    words: tuple[str, ...]
    patterns: tuple[str, ...]
    means: Mapping[str, str] = {}
    unless: str | None = None
    by_sentence: bool = False

    def read(self, text: str) -> Iterator[Fact]:
        """The facts of a line."""
        if self.unless and shape(self.unless).search(text):
            return
        for part in sentences(text) if self.by_sentence else (text,):
            for match in filter(None, (shape(pattern).search(part) for pattern in self.patterns)):
                yield from _facts(self.means)
                yield from facts_of(match)


class _PatternFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shapes: dict[str, str]
    readers: Mapping[str, tuple[PatternReader, ...]]
    labels: Mapping[str, Mapping[str, str]]


@cache
def _pattern_file() -> _PatternFile:
    return msgspec.toml.decode(Path(__file__).with_name("patterns.toml").read_bytes(), type=_PatternFile)


def readers(name: str) -> tuple[PatternReader, ...]:
    """The readers of one name."""
    return _pattern_file().readers[name]


def labels() -> dict[str, tuple[Trust, re.Pattern[str] | None]]:
    """How reliable the value of each label is, and its pattern; None if the value lists GPUs."""
    every = _pattern_file().labels.items()
    return {
        label: (Trust[trust.upper()], shape(pattern) if pattern else None)
        for trust, table in every
        for label, pattern in table.items()
    }


# Compiling all of them takes longer than reading a short report, which has the words of a few.
@cache
def shape(pattern: str) -> re.Pattern[str]:
    """A pattern of ``patterns.toml``, ``{{SHAPE}}`` in it replaced by the shape, its lines joined."""
    shapes = _pattern_file().shapes | {"VERSION": VERSION}
    while "{{" in pattern:
        pattern = re.sub(r"\{\{(\w+)\}\}", lambda match: re.sub(r"(?m)^ +|\n", "", shapes[match[1]]), pattern)
    return re.compile(pattern)


TextReader: TypeAlias = Callable[[str], Iterable[Fact]]
LogReader: TypeAlias = Callable[[Log, Catalogue], Iterable[Observation]]


class Readers:
    """The readers of one subject. Each is pure, and takes time linear in the log."""

    def __init__(self) -> None:
        self._readers: list[LogReader] = []

    def __call__(self, log: Log, catalogue: Catalogue) -> Iterator[Observation]:
        """Yield what every reader observes."""
        for reader in self._readers:
            yield from reader(log, catalogue)

    def log(self, reader: LogReader) -> LogReader:
        """Declare a reader of several lines together."""
        self._readers.append(reader)
        return reader

    def text(self, trust: Trust, *words: str) -> Callable[[TextReader], TextReader]:
        """Declare a reader of single lines that hold one of the words (lower case)."""

        def declare(reader: TextReader) -> TextReader:
            self._readers.append(
                lambda log, _: (
                    Observation(fact, line, trust) for line in log.containing(*words) for fact in reader(line.text)
                )
            )
            return reader

        return declare

    def patterns(self, name: str) -> None:
        """Declare the readers of one name in ``patterns.toml``."""
        for reader in readers(name):
            self.text(Trust[reader.trust.upper()], *reader.words)(reader.read)
