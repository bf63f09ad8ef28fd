"""The two sides of the solve: requirements, and the candidates that satisfy them.

Msgspec structs where other values are dataclasses: a solve makes thousands, and making the types takes a tenth of the
time at every start.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from resolvelib.structs import RequirementInformation

from envsolve.packages.model import IndexFile
from envsolve.solve.family import Option

#: The virtual package whose one version is the CUDA variant of the environment.
VARIANT = "the CUDA variant"
#: The virtual package for the environment's Python.
PYTHON = "the Python"
#: What torch and the libraries of a CUDA runtime claim: two majors in one process clash (rule 9).
CUDA_MAJOR = "the CUDA major of the runtime"


def key_of(name: str, extra: str | None) -> str:
    """The solver's name for a package, or for one extra of it."""
    return f"{name}[{extra}]" if extra else name


class PackageNeed(msgspec.Struct, frozen=True):
    """A requirement on a package (or one extra of it), as it was written."""

    name: str
    extra: str | None
    specifier: SpecifierSet
    url: str | None
    text: str
    origin: str

    @property
    def key(self) -> str:
        """The solver's name for this requirement."""
        return key_of(self.name, self.extra)


class LimitNeed(PackageNeed, frozen=True):
    """A limit that the solver adds to a request, because of what was chosen for it; no reason for a package."""


class Conjunctions:
    """The combined requirements on packages, cached because a search needs them thousands of times."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[SpecifierSet, tuple[SpecifierSet, ...]]] = {}

    def of(self, name: str, needs: Iterable[object], constraint: SpecifierSet) -> SpecifierSet:
        """The conjunction of a constraint, always the same for a package, and of the needs that have a specifier."""
        asked = {id(need.specifier): need.specifier for need in needs if isinstance(need, PackageNeed)}
        key = (name, *asked)
        if key not in self._known:
            together = constraint
            for one in asked.values():
                together &= one
            # The specifiers are kept, so that no other one can come to have the id of one of them.
            self._known[key] = together, tuple(asked.values())
        return self._known[key][0]


def within(places: Sequence[int], specifier: SpecifierSet, version: Callable[[int], Version]) -> Sequence[int]:
    """The places of versions within the bounds of a specifier, newest first; some of them may not satisfy it.

    A package with a release a day (boto3 has 2,000) is compared with thousands of specifiers, each of which accepts
    few releases.
    """
    first, last = 0, len(places)
    for newest, oldest in map(_bounds, specifier):
        if newest is not None:
            first = max(first, bisect_left(places, True, key=lambda place: not _is_newer(version(place), newest)))
        if oldest is not None:
            last = min(last, bisect_left(places, True, key=lambda place: version(place) < oldest))
    return places[first:last]


@lru_cache(maxsize=4096)
def _bounds(one: Specifier) -> tuple[Version | None, Version | None]:
    """Versions between which all lie that a specifier takes, not always the nearest ones; None for no bound."""
    text = one.version.removesuffix(".*")
    try:
        bound = Version(text)
    except InvalidVersion:  # of ===
        return None, None
    if one.operator in ("<", "<="):
        return bound, None
    if one.operator in (">", ">="):
        return None, bound
    if one.operator == "==" and text == one.version:
        return bound, bound
    kept = bound.release[:-1] if one.operator == "~=" else bound.release
    if one.operator not in ("==", "~=") or not kept or bound.epoch:
        return None, None
    # 1.2.* is before 1.3, and its first pre-releases are before 1.2.
    newest = Version(".".join(map(str, (*kept[:-1], kept[-1] + 1))))
    return newest, bound if one.operator == "~=" else Version(f"{text}.dev0")


def _is_newer(version: Version, bound: Version) -> bool:
    """Whether a version is beyond an upper bound, which takes every build (``+local``) of its own version."""
    return version > bound and (version.local is None or Version(version.public) > bound)


# Requirement lines of METADATA, read once however often they are come upon.


# A marker that is one comparison with an extra, or several things and that.
_OF_EXTRA = re.compile(r""";(?:.*\sand\s)?\s*\(?\s*extra\s*==\s*["']([^"']+)["']\s*\)?\s*$""")
_OR = re.compile(r"\bor\b")
_TEXT = re.compile(r""""[^"]*"|'[^']*'""")
_GROUP = re.compile(r"\([^()]*\)")


@lru_cache(maxsize=16384)
def parsed(line: str) -> Requirement | None:
    """A requirement line, parsed, or None. Cached: every extra of a package reads the same lines again."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


@lru_cache(maxsize=16384)
def only_for(line: str) -> str | None:
    """The extra that a requirement line needs, normalised; None if the marker is more complex.

    Most lines of large packages are of extras that nobody asked for, and reading each costs more than all else.
    """
    found = _OF_EXTRA.search(line)
    if found is None or (_OR.search(line) and _is_choice(line[: found.start(1)])):
        return None
    return str(canonicalize_name(found[1]))


def _is_choice(before: str) -> bool:
    """Whether the condition before the extra may hold instead: not for an ``or`` in closed parentheses."""
    open_, removed = _TEXT.sub("", before), 1
    while removed:
        open_, removed = _GROUP.subn("", open_)
    return _OR.search(open_) is not None


Thing = TypeVar("Thing")


class Walk(Generic[Thing]):
    """The items of an iterator, computed on first use, any number of times from the start.

    Backtracking comes back to the same package with the same specifiers thousands of times, and takes the first.
    """

    def __init__(self, source: Iterator[Thing]) -> None:
        self._source = source
        self._found: list[Thing] = []

    def __iter__(self) -> Iterator[Thing]:
        place = 0
        while True:
            if place == len(self._found):
                try:
                    self._found.append(next(self._source))
                except StopIteration:
                    return
            yield self._found[place]
            place += 1


class SameNeed(msgspec.Struct, frozen=True):
    """An extra asks for the very candidate that it extends."""

    candidate: Candidate

    @property
    def key(self) -> str:
        """The solver's name for this requirement."""
        return self.candidate.name

    @property
    def text(self) -> str:
        """For messages."""
        return f"{self.candidate.name}=={self.candidate.version}"


class PairedNeed(msgspec.Struct, frozen=True):
    """A torch that matches the companions that were requested: one of these options.

    Without it the solver would take the newest torch first and then bend variant and version to the companions.
    """

    options: frozenset[tuple[str, str, str]]
    text: str
    key: str = "torch"


class VariantNeed(msgspec.Struct, frozen=True):
    """A build's demand that the whole environment has one of these CUDA variants."""

    variants: frozenset[str]
    key: str = VARIANT

    @property
    def text(self) -> str:
        """For messages."""
        return f"everything on {' or '.join(sorted(self.variants))}"


class ClaimNeed(msgspec.Struct, frozen=True):
    """A candidate's claim on something that an environment can have only once: the files of a package, a CUDA major.

    Attributes:
        holder: Who or what it is, according to the candidate: candidates with different holders exclude each other.
        key: What is claimed; the name of a virtual package whose one version is the holder.
        text: What the candidate does with it, for messages: ``installs the files of cuda-bindings``.
    """

    holder: str
    key: str
    text: str


class PythonNeed(msgspec.Struct, frozen=True):
    """A candidate's requirement of another Python than the environment's, which nothing satisfies."""

    requires_python: str
    key: str = PYTHON

    @property
    def text(self) -> str:
        """For messages."""
        return f"Python {self.requires_python}"


class ClaimCandidate(msgspec.Struct, frozen=True):
    """The candidate that holds the claim."""

    holder: str
    key: str


class VariantCandidate(msgspec.Struct, frozen=True):
    """A CUDA variant for the whole environment."""

    variant: str
    key: str = VARIANT


class Candidate(msgspec.Struct, frozen=True, eq=False):
    """One version of a package, as one file.

    Two candidates are the same if they have the same version, variant and place, whichever file objects they hold.

    Attributes:
        extra: Set on the proxy that adds one extra's dependencies to the candidate of the same version.
        file: The chosen file; None for a family option, whose file is looked up once it is chosen. Beside a wheel that
            is on no index, the file of its version that is on one.
        option: For torch-family packages and such wheels, the build and its verdict.
        url: For a direct reference.
    """

    name: str
    version: Version
    extra: str | None = None
    file: IndexFile | None = None
    option: Option | None = None
    url: str | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Its identity among candidates."""
        build = self.option.build if self.option else None
        return (self.name, self.extra, self.version, self.url, build and (build.variant, build.index))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def key(self) -> str:
        """The solver's name for it."""
        return key_of(self.name, self.extra)

    @property
    def label(self) -> str:
        """For messages: ``torch 2.9.1 [cu128]``."""
        extra = f"[{self.extra}]" if self.extra else ""
        variant = f" [{self.option.build.variant}]" if self.option and self.option.build.variant != "any" else ""
        version = "" if self.url else f" {self.version.public if self.option else self.version}"
        return f"{self.name}{extra}{version}{variant}"


AnyNeed = PackageNeed | SameNeed | PairedNeed | VariantNeed | ClaimNeed | PythonNeed
AnyCandidate = Candidate | VariantCandidate | ClaimCandidate


class Learnt:
    """What searches learned about candidates; valid for the same roots.

    Attributes:
        barred: Those in no solution.
        excluded: Whether two needs leave no version of their package.
        failed: Of candidates, the needs that another one excluded, each with the candidate.
        refuted: Of candidates, others beside which they are in no solution.
    """

    def __init__(self) -> None:
        self.barred: set[AnyCandidate] = set()
        self.excluded: dict[tuple[AnyNeed, AnyNeed], bool] = {}
        self.failed: dict[AnyCandidate, list[list[RequirementInformation[AnyNeed, AnyCandidate]]]] = {}
        self.refuted: dict[AnyCandidate, dict[frozenset[AnyCandidate], None]] = {}
