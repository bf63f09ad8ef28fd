"""A demand for builds that were never published: what was, and the nearest that runs on the machines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from envsolve.facts.catalogue import nearest_flavours
from envsolve.solve.family import Family, Option
from envsolve.solve.limits import Limits, best_of
from envsolve.solve.outcome import Conflict, ConflictFact, Fix


class _Pin(msgspec.Struct, frozen=True):
    """A demand for one version: ``==2.0.0+cu121``."""

    version: Version
    variant: str | None


def explain_unpublished(name: str, family: Family, limits: Limits) -> Conflict:
    """Why a demand on a package is met by no build in the catalogue, whatever the machine, and what comes nearest."""
    specifier = limits.asked[name]
    options = family.judged(name)
    versions = sorted({Version(option.version.public) for option in options})
    asked = ConflictFact(f"{name}{specifier} was asked for")
    before = f" from before {family.exclude_newer.partition('T')[0]}" if family.exclude_newer else ""
    if not versions:
        fact = ConflictFact(f"no build of {name} is known{before}")
        return Conflict((asked, fact), tuple(_later(family, limits)))
    if len(specifier) > 1 and all(any(o.matches(SpecifierSet(str(one))) for o in options) for one in specifier):
        words = " and ".join(sorted(map(str, specifier)))
        fact = ConflictFact(f"no {name} that is known{before} is {words} at once")
        return Conflict((asked, fact), (*_later(family, limits), *_one_dropped(name, family, limits)))
    pin = _pin(specifier)
    same = [option for option in options if pin and option.version.public == pin.version.public]
    if pin and same:
        text = published_as(name, pin.version.public, same) + _of_flavour(name, pin.variant, family)
        fact = ConflictFact(text, _source(same[0], family))
    else:
        near = ", ".join(map(str, _around(pin.version, versions))) if pin else ""
        known = f"the builds of {name} that are known{before}: {versions[0]} to {versions[-1]}"
        text = f"{known}, and none of them is {specifier}"
        fact = ConflictFact(f"{text}; the nearest: {near}" if near else text)
    found = (*for_a_gpu(family, limits), *_later(family, limits), *_remedies(name, pin, versions, family, limits))
    return Conflict((asked, fact), tuple(dict.fromkeys(found)))


def explain_unpublished_flavour(flavour: str, family: Family, limits: Limits) -> Conflict:
    """Why a flavour that torch was never published for is no answer; the nearest that has one, and any that has."""
    near = nearest_flavours(flavour, family.catalogue)
    text = f"torch was never published for {flavour}"
    facts = (
        ConflictFact(f"the CUDA flavour {flavour} was asked for"),
        ConflictFact(f"{text}; the nearest are {' and '.join(near)}" if near else text),
    )
    found: dict[Fix, None] = {}
    for other in (*reversed(near), None):
        best = best_of(family, replace(limits, flavour=other))
        if best is not None:
            action = f"ask for --cuda {other}" if other else f"relax --cuda {flavour}"
            found[Fix(action, unlocks=", ".join(option.label for option in best))] = None
    return Conflict(facts, (*for_a_gpu(family, limits), *found))


def published_as(name: str, version: str, options: list[Option]) -> str:
    """In which flavours a version was published: ``torch 2.0.0 was published as cpu, cu117, cu118 alone``."""
    variants = sorted({option.build.variant for option in options}, key=lambda variant: (len(variant), variant))
    return f"{name} {version} was published as {', '.join(variants)} alone"


def _of_flavour(name: str, variant: str | None, family: Family) -> str:
    """Which versions there are of a flavour: ``; for cu121 there are 2.1.0 to 2.5.1``."""
    options = [option for option in family.judged(name) if option.build.variant == variant]
    versions = sorted({Version(option.version.public) for option in options})
    if not versions:
        return ""
    span = f"there are {versions[0]} to {versions[-1]}" if len(versions) > 1 else f"there is {versions[0]}"
    return f"; for {variant} {span}"


def _later(family: Family, limits: Limits) -> Iterator[Fix]:
    """What there is if later days count, too."""
    if family.exclude_newer and (best := best_of(replace(family, exclude_newer=None), limits)):
        yield Fix("leave out --exclude-newer", unlocks=", ".join(option.label for option in best))


def _one_dropped(name: str, family: Family, limits: Limits) -> Iterator[Fix]:
    """To leave out one of several demands on a package that contradict each other."""
    every = sorted(map(str, limits.asked[name]))
    for one in every:
        rest = SpecifierSet(",".join(other for other in every if other != one))
        best = best_of(family, replace(limits, asked={**limits.asked, name: rest}))
        if best is not None:
            yield Fix(f"leave {name}{one} out", unlocks=", ".join(option.label for option in best))


def for_a_gpu(family: Family, limits: Limits) -> Iterator[Fix]:
    """That a CUDA flavour is planned for the machine that will run it, where it was planned for one without a GPU."""
    pins = (_pin(specifier) for specifier in limits.asked.values())
    named = [limits.flavour, *(pin.variant for pin in pins if pin)]
    if family.wants_cpu and any(flavour not in (None, "cpu") for flavour in named):
        yield Fix("plan for the machine that has the GPU: --target 'NAME, driver VERSION'")


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


def _remedies(name: str, pin: _Pin | None, versions: list[Version], family: Family, limits: Limits) -> Iterator[Fix]:
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
        yield Fix(f"relax {name}{limits.asked[name]}", unlocks=", ".join(option.label for option in best))


def first_that_fits(name: str, specifiers: Sequence[str], family: Family, limits: Limits) -> Iterator[Fix]:
    """To ask for the first of several things that has an answer."""
    for specifier in specifiers:
        best = best_of(family, replace(limits, asked={**limits.asked, name: SpecifierSet(specifier)}))
        if best is not None:
            build = next(option.build for option in best if option.build.package == name)
            same = {o.build.variant for o in family.judged(name) if o.build.version == build.version}
            pin = f"{name}=={build.version}" + (f"+{build.variant}" if len(same) > 1 else "")
            yield Fix(f"ask for {pin}", unlocks=", ".join(option.label for option in best))
            return


def _source(option: Option, family: Family) -> str | None:
    source = family.catalogue.source(option.build.source)
    return source.title if source else None


# The same project published under several names, one for each CUDA: ``cupy-cuda11x`` beside ``cupy-cuda12x``.


_CUDA = re.compile(r"(?<=-)(cuda|cu)\d+x?(?=-|$)")


def other_cuda(family: Family, limits: Limits) -> Iterator[Fix]:
    """To ask for a package's sibling for another CUDA, the newest that has an answer."""
    for name in limits.asked:
        stem = _CUDA.sub("", name)
        if stem == name:
            continue
        found = []
        for sibling in family.catalogue.family:
            if sibling != name and _CUDA.sub("", sibling) == stem and family.options(sibling):
                rest = {other: specifier for other, specifier in limits.asked.items() if other != name}
                best = best_of(family, replace(limits, asked={**rest, sibling: SpecifierSet()}))
                option = next((o for o in best or () if o.build.package == sibling), None)
                if option is not None and option.verdict.level.usable:
                    found.append(option)
        if found:
            newest = max(found, key=lambda option: option.version)
            yield Fix(f"ask for {newest.build.package} instead of {name}", unlocks=newest.label)
