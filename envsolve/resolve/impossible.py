"""Impossible, well said: the smallest set of facts about machine and request that no torch-family build survives.

Every fact that limits the choice of builds is a *limit* that can be lifted on its own: a requirement, the Python, the
libc, the driver, the cards, a flavour. Lifting them one by one and asking whether a build then exists leaves an
irreducible set: no member can be dropped. The same question, asked with one limit changed, finds the remedies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.compat.platform import same_system
from envsolve.machine.model import Platform
from envsolve.resolve.family import Family, Option
from envsolve.resolve.limits import Limit, Limits, best_under, limits_of
from envsolve.resolve.outcome import Conflict, ConflictFact, Remedy
from envsolve.resolve.remedies import remedies

_EXAMPLES = 4


def explain(family: Family, limits: Limits) -> Conflict | None:
    """The irreducible conflict and its remedies; None where the torch family is not asked for, or has an answer."""
    for name, specifier in limits.asked.items():
        if not any(option.matches(specifier) for option in family.judged(name)):
            return _undescribed(name, specifier, family)
    every = tuple(limits_of(family, limits))
    if not limits.asked or best_under(family, limits, every) is not None:
        return None
    core = list(every)
    for limit in every:
        rest = [other for other in core if other is not limit]
        if best_under(family, limits, rest) is None:
            core = rest
    facts = [ConflictFact(limit.fact) for limit in core]
    facts += _pairings(family, limits, core)
    facts += _failing_builds(family, limits)
    return Conflict(tuple(facts), tuple(remedies(family, limits, every, core)))


def _undescribed(name: str, specifier: SpecifierSet, family: Family) -> Conflict:
    """A requirement that no build in the catalogue meets, whatever the machine."""
    versions = sorted({option.version.public for option in family.judged(name)}, key=Version)
    known = f"{versions[0]} to {versions[-1]}" if versions else "none published before the date that was asked for"
    text = f"the builds of {name} that are known: {known}"
    none = f", and none of them is {specifier}" if str(specifier) and versions else ""
    facts = (ConflictFact(f"{name}{specifier} was asked for"), ConflictFact(text + none))
    remedies = (Remedy(f"relax {name}{specifier}", f"{name} {versions[-1]}"),) if versions else ()
    return Conflict(facts, remedies)


def _pairings(family: Family, limits: Limits, core: Sequence[Limit]) -> Iterator[ConflictFact]:
    """For each package of a conflict with companions: the newest version asked for, its flavours and its torch."""
    names = [limit.name for limit in core if limit.kind == "asked"]
    for name in names if any(name != "torch" for name in names) else ():
        builds = [o.build for o in family.judged(name) if o.matches(limits.asked[name]) and _for_these(o, family)]
        if not builds:
            continue
        newest = [build for build in builds if build.version == builds[0].version]
        variants = ", ".join(sorted({build.variant for build in newest}))
        torch = f", for torch{newest[0].torch}" if newest[0].torch else ""
        source = family.catalogue.source(newest[0].source)
        text = f"{name} {newest[0].version} is published as {variants}{torch}"
        yield ConflictFact(text, source.title if source else None)


def _failing_builds(family: Family, limits: Limits) -> Iterator[ConflictFact]:
    """Of the builds that the request names, why each does not run: one fact per distinct reason.

    They are those of torch, unless a package that stands without torch has none that runs.
    """
    alone = [n for n in limits.asked if n != "torch" and not family.follows_torch(n) and not family.options(n)]
    for package in alone or ("torch",):
        yield from failing(package, limits.asked.get(package, SpecifierSet()), family, limits.flavour)


def failing(
    package: str, specifier: SpecifierSet, family: Family, flavour: str | None = None
) -> Iterator[ConflictFact]:
    """Why builds of a package do not run on the machines: the newest build for each distinct reason."""
    named = [o for o in family.judged(package) if o.matches(specifier) and _for_these(o, family)]
    # That a CPU build does not use the GPU is only worth saying where nothing else was asked for.
    options = [o for o in named if o.build.variant != "cpu"] or named
    told: dict[str, ConflictFact] = {}
    for option in options:
        if flavour and option.build.variant != flavour:
            continue
        for reason in option.verdict.failures[:1]:
            source = family.catalogue.source(reason.source)
            label = f"{package} {option.build.version} [{option.build.variant}]"
            told.setdefault(reason.text, ConflictFact(f"{label}: {reason.text}", source.title if source else None))
    yield from list(told.values())[:_EXAMPLES]


def _for_these(option: Option, family: Family) -> bool:
    """Whether an option was published for the machines' operating systems and architectures at all."""
    pairs = zip(option.builds, family.machines, strict=True)
    return all(same_system(build.platform, machine.platform or Platform()) for build, machine in pairs)
