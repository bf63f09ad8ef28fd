"""A demand for builds that were never published: what was, and the nearest that runs on the machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from envsolve.catalogue.published import nearest_flavours
from envsolve.resolve.family import Family, Option
from envsolve.resolve.limits import Limits, best_of
from envsolve.resolve.outcome import Conflict, ConflictFact, Remedy


@dataclass(frozen=True, slots=True)
class _Pin:
    """A demand for one version: ``==2.0.0+cu121``."""

    version: Version
    variant: str | None


def explain_unpublished(name: str, family: Family, limits: Limits) -> Conflict:
    """Why a demand on a package is met by no build in the catalogue, whatever the machine, and what comes nearest."""
    specifier = limits.asked[name]
    options = family.judged(name)
    versions = sorted({Version(option.version.public) for option in options})
    asked = ConflictFact(f"{name}{specifier} was asked for")
    if not versions:
        return Conflict(
            (asked, ConflictFact(f"no build of {name} is known from before the date that was asked for")), ()
        )
    pin = _pin(specifier)
    same = [option for option in options if pin and option.version.public == pin.version.public]
    if pin and same:
        fact = ConflictFact(published_as(name, pin.version.public, same), _source(same[0], family))
    else:
        near = ", ".join(map(str, _around(pin.version, versions))) if pin else ""
        text = f"the builds of {name} that are known: {versions[0]} to {versions[-1]}, and none of them is {specifier}"
        fact = ConflictFact(f"{text}; the nearest: {near}" if near else text)
    remedies = dict.fromkeys(_remedies(name, pin, versions, family, limits))
    return Conflict((asked, fact), tuple(remedies))


def explain_unpublished_flavour(flavour: str, family: Family, limits: Limits) -> Conflict:
    """Why a flavour that torch was never published for is no answer; the nearest that has one, and any that has."""
    near = nearest_flavours(flavour, family.catalogue)
    text = f"torch was never published for {flavour}"
    facts = (
        ConflictFact(f"the CUDA flavour {flavour} was asked for"),
        ConflictFact(f"{text}; the nearest are {' and '.join(near)}" if near else text),
    )
    found: dict[Remedy, None] = {}
    for other in (*reversed(near), None):
        best = best_of(family, replace(limits, flavour=other))
        if best is not None:
            action = f"ask for --cuda {other}" if other else f"relax --cuda {flavour}"
            found[Remedy(action, ", ".join(option.label for option in best))] = None
    return Conflict(facts, tuple(found))


def published_as(name: str, version: str, options: list[Option]) -> str:
    """In which flavours a version was published: ``torch 2.0.0 was published as cpu, cu117, cu118 alone``."""
    variants = sorted({option.build.variant for option in options}, key=lambda variant: (len(variant), variant))
    return f"{name} {version} was published as {', '.join(variants)} alone"


def without_flavour(specifier: SpecifierSet) -> SpecifierSet:
    """A specifier whose pin names a version alone: ``==2.0.0`` for ``==2.0.0+cu121``."""
    return SpecifierSet(",".join(str(one).partition("+")[0] for one in specifier))


def _pin(specifier: SpecifierSet) -> _Pin | None:
    pins = [one.version for one in specifier if one.operator in ("==", "===") and not one.version.endswith(".*")]
    try:
        version = Version(pins[0]) if len(pins) == 1 else None
    except InvalidVersion:
        return None
    return _Pin(version, version.local) if version else None


def _around(version: Version, versions: list[Version]) -> list[Version]:
    """The nearest of the versions below and above one."""
    public = Version(version.public)
    return [*[v for v in versions if v < public][-1:], *[v for v in versions if v > public][:1]]


def _remedies(name: str, pin: _Pin | None, versions: list[Version], family: Family, limits: Limits) -> Iterator[Remedy]:
    """The same version in another flavour, the nearest versions in the same flavour or in any, any version at all."""
    if pin:
        public = Version(pin.version.public)
        yield from first_that_fits(name, [f"=={public}"], family, limits)
        newer, older = [v for v in versions if v > public], [v for v in reversed(versions) if v < public]
        for flavour in dict.fromkeys((f"+{pin.variant}" if pin.variant else "", "")):
            ways = ([f"=={version}{flavour}" for version in side] for side in (newer, older))
            found = [remedy for side in ways for remedy in first_that_fits(name, side, family, limits)]
            yield from found
            if found:
                break
    best = best_of(family, replace(limits, asked={**limits.asked, name: SpecifierSet()}))
    if best is not None:
        yield Remedy(f"relax {name}{limits.asked[name]}", ", ".join(option.label for option in best))


def first_that_fits(name: str, specifiers: Sequence[str], family: Family, limits: Limits) -> Iterator[Remedy]:
    """To ask for the first of several things that has an answer."""
    for specifier in specifiers:
        best = best_of(family, replace(limits, asked={**limits.asked, name: SpecifierSet(specifier)}))
        if best is not None:
            build = next(option.build for option in best if option.build.package == name)
            yield Remedy(f"ask for {name}=={build.version}+{build.variant}", ", ".join(option.label for option in best))
            return


def _source(option: Option, family: Family) -> str | None:
    source = family.catalogue.source(option.build.source)
    return source.title if source else None
