"""The builds of a package that pip finds on an index, and which of them run on all the machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.builds import BuildLine, list_builds
from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import IndexPlace
from envsolve.machine.model import Machine

_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Offer:
    """One build, with its verdict for each GPU."""

    lines: tuple[BuildLine, ...]

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

    def for_python(self, python: str | None) -> bool:
        """Whether it has a wheel for a Python; where that is not known, it has."""
        if python is None:
            return True
        own = f"cp{python.replace('.', '')}"
        return any(key.split("-")[0] == own or key.startswith("py3") or "abi3" in key for key in self.build.pythons)

    def command(self, indexes: Mapping[str, IndexPlace]) -> str:
        """What installs it and nothing else in its place."""
        place = indexes.get(self.build.index)
        where = f" --index-url {place.url.format(variant=self.build.variant)}" if place else ""
        return f"pip install {self.build.package}=={self.version}{where}"


def offers(package: str, machines: Sequence[Machine], catalogue: Catalogue) -> tuple[Offer, ...]:
    """Every build of a package that an installer finds by its name, newest first; none of what is not described."""
    if not catalogue.builds(package):
        return ()
    simple = {_DEFAULT, *(name for name, place in catalogue.indexes.items() if place.kind == "simple")}
    lines = list_builds(package, machines, None, catalogue).builds
    return _together(line for line in lines if line.index in simple)


def _together(lines: Iterable[BuildLine]) -> tuple[Offer, ...]:
    together: dict[tuple[str, ...], list[BuildLine]] = {}
    for line in lines:
        key = (line.version, line.local, line.variant, line.index, line.platform, *line.pythons)
        together.setdefault(key, []).append(line)
    return tuple(Offer(tuple(found)) for found in together.values())


def found_by_pip(
    known: Sequence[Offer], specifier: SpecifierSet, variant: str | None, python: str | None
) -> Iterator[Offer]:
    """Those that a specifier allows, on the default index or on PyTorch's of a variant."""
    early = bool(specifier.prereleases)
    for offer in known:
        here = offer.build.index == _DEFAULT if variant is None else offer.build.variant == variant
        elsewhere = variant is not None and offer.build.index == _DEFAULT
        if here and not elsewhere and offer.for_python(python) and specifier.contains(offer.version, prereleases=early):
            yield offer


def running(known: Iterable[Offer], python: str | None) -> Iterator[Offer]:
    """Those that run on every machine, newest first; of equals, those whose file names say their variant."""
    good = [offer for offer in known if offer.refused is None and offer.for_python(python)]
    return iter(sorted(good, key=lambda o: (Version(o.build.version), _level(o), bool(o.build.local)), reverse=True))


def _level(offer: Offer) -> int:
    return min(("none", "unknown", "ptx", "family", "native").index(line.verdict) for line in offer.lines)
