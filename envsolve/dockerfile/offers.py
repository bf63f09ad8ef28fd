"""The builds of a package that an installer finds, and which of them run on all the machines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.advice.torch import preference
from envsolve.dockerfile.read import Places
from envsolve.facts.builds import IndexPlace
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.channels import Distribution, Image
from envsolve.machine.model import Machine
from envsolve.planning.builds import BuildLine, list_builds
from envsolve.rules.judge import as_judged
from envsolve.rules.nvidia import Facts
from envsolve.rules.platform import libc_needed, libc_serves, python_tag
from envsolve.solve.family import Family

_DEFAULT = "default"
Libc: TypeAlias = tuple[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Within:
    """What an installer runs in: it finds the wheels that fit, and sees no others.

    Attributes:
        python: ``3.12``; None where it is not known.
        libc: That of the image, whatever the machine's; None likewise.
    """

    python: str | None = None
    libc: Libc | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """One build, with its verdict for each GPU.

    Attributes:
        place: Its place in the order in which ``envsolve plan`` tries builds.
        requires: Requires-Dist lines, where they are known.
    """

    lines: tuple[BuildLine, ...]
    place: int
    requires: tuple[str, ...] | None = None

    @property
    def build(self) -> BuildLine:
        """The build itself."""
        return self.lines[0]

    @property
    def version(self) -> Version:
        """With the local part of its file name."""
        return Version(self.build.version + self.build.local)

    @property
    def refused(self) -> BuildLine | None:
        """The first GPU that it does not run on."""
        return next((line for line in self.lines if line.verdict == "none"), None)

    @property
    def without_triton(self) -> BuildLine | None:
        """The first GPU that kernels of its Triton do not run on."""
        return next((line for line in self.lines if line.triton is False), None)

    @property
    def libc(self) -> Libc:
        """The libc that its wheel asks for; the oldest glibc where its tag asks for none, since it was made on one."""
        return libc_needed(self.build.platform) or ("glibc", (2, 0))

    def for_python(self, python: str | None) -> bool:
        """Whether it has a wheel for a Python; where that is not known, it has."""
        return python is None or python_tag(self.build.pythons, python) is not None

    def fits(self, within: Within) -> bool:
        """Whether it has a wheel for a Python and a libc; what is not known does not count as no."""
        return self.for_python(within.python) and (within.libc is None or libc_serves(within.libc, self.libc))

    def needs(self, package: str) -> SpecifierSet | None:
        """What it asks of another package's version; None where nothing is known of that."""
        if package == "torch" and self.build.torch:
            return SpecifierSet(self.build.torch)
        for line in self.requires or ():
            needed = Requirement(line)
            if canonicalize_name(needed.name) == package and "extra" not in str(needed.marker):
                return needed.specifier
        return None

    def command(self, indexes: Mapping[str, IndexPlace]) -> str:
        """What installs it and nothing else in its place."""
        place = indexes.get(self.build.index)
        where = f" --index-url {place.url.format(variant=self.build.variant)}" if place else ""
        return f"pip install {self.build.package}=={self.version}{where}"


def offers(package: str, machines: Sequence[Machine], catalogue: Catalogue) -> tuple[Offer, ...]:
    """Every build of a package that an installer finds by its name, newest first; none of what is not described."""
    if package not in catalogue.packages() or not catalogue.builds(package):
        return ()
    simple = {_DEFAULT, *(name for name, place in catalogue.indexes.items() if place.kind == "simple")}
    requires = {
        (build.version, build.local, build.variant, build.index, build.platform): build.requires
        for build in catalogue.builds(package)
    }
    together: dict[tuple[tuple[str, str, str, str, str], tuple[str, ...]], list[BuildLine]] = {}
    for line in list_builds(package, machines, None, catalogue).builds:
        if line.index in simple:
            key = (line.version, line.local, line.variant, line.index, line.platform)
            together.setdefault((key, line.pythons), []).append(line)
    judged = tuple(as_judged(machine, None, catalogue.drivers) for machine in machines)
    place = preference(Family(catalogue, Facts.of(catalogue), judged, None), package)
    return tuple(Offer(tuple(lines), place(key[0], key[2]), requires.get(key)) for (key, _), lines in together.items())


def found(
    known: Sequence[Offer], specifier: SpecifierSet, places: Places, within: Within, early: bool = False
) -> list[Offer]:
    """Those that a specifier allows in the places where an installer looks.

    Args:
        early: Whether versions before a release are taken.
    """
    early = early or bool(specifier.prereleases)
    here = [offer for offer in known if offer.fits(within) and _is_in(offer, places)]
    if not places.merges and any(offer.build.index != _DEFAULT for offer in here):
        here = [offer for offer in here if offer.build.index != _DEFAULT]
    return [offer for offer in here if specifier.contains(offer.version, prereleases=early)]


def _is_in(offer: Offer, places: Places) -> bool:
    if offer.build.index == _DEFAULT:
        return places.default
    return places.every or offer.build.variant in (*places.variants, *(("any",) if places.variants else ()))


def running(known: Iterable[Offer], within: Within) -> Iterator[Offer]:
    """Those that run on every machine, in the order in which ``envsolve plan`` tries them.

    Of one build on two indexes, the one whose file name contains the variant comes first.
    """
    good = (offer for offer in known if offer.refused is None and offer.fits(within))
    return iter(sorted(good, key=lambda offer: (offer.place, not offer.build.local)))


# What the name of an image says: which image it is wherever it is fetched from, and what stands in it.


# The same images under the names of other registries.
_HOSTS = re.compile(
    r"^(?:(?:docker\.io|index\.docker\.io|registry-1\.docker\.io|public\.ecr\.aws/docker|mirror\.gcr\.io)/)"
)
_NGC_CUDA = "nvcr.io/nvidia/cuda"


@dataclass(frozen=True, slots=True)
class Name:
    """An image's name, taken apart.

    Attributes:
        repository: As the catalogue writes it: ``nvidia/cuda``, ``python``.
        tag: ``latest`` where none is given; empty where a digest stands alone.
    """

    repository: str
    tag: str

    @classmethod
    def of(cls, text: str) -> Name:
        """Read it."""
        name, at, _ = text.partition("@")
        repository, colon, tag = name.rpartition(":")
        if not colon or "/" in tag:
            repository, tag = name, "" if at else "latest"
        if repository == _NGC_CUDA:
            repository = "nvidia/cuda"
        return cls(_HOSTS.sub("", repository).removeprefix("library/"), tag)

    @property
    def known(self) -> bool:
        """Whether no variable that is given at build time stands in it."""
        return bool(self.tag) and "$" not in self.repository + self.tag

    def image(self, images: Sequence[Image]) -> Image | None:
        """What the catalogue knows of it."""
        return next((i for i in images if i.repository == self.repository and self.tag in i.tags), None)

    def python(self) -> str | None:
        """The Python of the official images of Python."""
        match = re.match(r"(3\.\d+)(?![\d])", self.tag) if self.repository == "python" else None
        return match[1] if match else None

    def distribution(self, distributions: Mapping[str, Distribution]) -> Distribution | None:
        """The distribution that it is an image of, or that its tag ends with."""
        for name in (self.repository + self.tag, *reversed(self.tag.split("-"))):
            known = distributions.get(re.sub(r"^(alpine)(?:\d.*|latest|edge)$", r"\1", name.removesuffix("-slim")))
            if known:
                return known
        return None
