"""Impossible, well said: the smallest set of facts about machine and request that no torch-family build survives.

Every fact that limits the choice of builds is a *limit* that can be lifted on its own: a requirement, the Python, the
libc, the driver, the cards, a flavour. Lifting them one by one and asking whether a build then exists leaves an
irreducible set: no member can be dropped. The same question, asked with one limit changed, finds the remedies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from packaging.specifiers import SpecifierSet

from envsolve.catalogue.published import flavours
from envsolve.compat.platform import SYSTEMS, same_system
from envsolve.machine.model import Platform
from envsolve.resolve.family import Family, Option
from envsolve.resolve.limits import Limit, Limits, best_under, limits_of
from envsolve.resolve.outcome import Conflict, ConflictFact
from envsolve.resolve.remedies import remedies
from envsolve.resolve.together import together
from envsolve.resolve.unpublished import explain_unpublished, explain_unpublished_flavour, published_as

_EXAMPLES = 4
# The kind of limit that makes a rule fail; the platform's rule may be that of either of two.
_KINDS = {"driver-floor": "driver", "driver-ptx": "driver", "sass": "gpus", "ptx": "gpus", "libraries": "gpus"}


def explain(family: Family, limits: Limits) -> Conflict | None:
    """The irreducible conflict and its remedies; None where the torch family is not asked for, or has an answer."""
    for name, specifier in limits.asked.items():
        if not any(option.matches(specifier) for option in family.judged(name)):
            return explain_unpublished(name, family, limits)
    if limits.flavour and limits.asked and limits.flavour not in flavours(family.catalogue):
        return explain_unpublished_flavour(limits.flavour, family, limits)
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
    facts += _failing_builds(family, limits, {limit.kind for limit in core})
    found = tuple(remedies(family, limits, every, core))
    if not any(remedy.unlocks for remedy in found) and (several := together(family, limits, every)):
        found += (several,)
    return Conflict(tuple(facts), found)


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


def _failing_builds(family: Family, limits: Limits, kinds: Collection[str]) -> Iterator[ConflictFact]:
    """Of the builds that the request names, why each does not run: one fact per distinct reason.

    They are those of torch, unless there are packages beside it of which none has code that runs.
    """
    barren = [name for name in limits.asked if name != "torch" and not family.options(name)]
    for package in barren or ("torch",):
        yield from failing(package, limits.asked.get(package, SpecifierSet()), family, limits.flavour, kinds)


def failing(
    package: str,
    specifier: SpecifierSet,
    family: Family,
    flavour: str | None = None,
    kinds: Collection[str] = (),
) -> Iterator[ConflictFact]:
    """Why builds of a package do not run on the machines: the newest build for each distinct reason.

    Args:
        package: The package.
        specifier: Which of its builds.
        family: The torch family on the machines.
        flavour: Only builds of this one.
        kinds: The kinds of limits that are to blame: of a build's failures, those of other kinds are passed over.
    """
    matching = [option for option in family.judged(package) if option.matches(specifier)]
    named = [option for option in matching if _for_these(option, family)]
    with_cuda = [option for option in named if option.build.variant != "cpu"]
    if matching and not named:
        yield _published_elsewhere(package, matching[0], family)
    if named and not with_cuda:
        yield from _told([o for o in matching if o.build.cuda and o not in named][:1], family, ())
    # That a CPU build does not use the GPU is only worth saying where nothing else was asked for.
    options = with_cuda or named
    of_flavour = [option for option in options if flavour in (None, option.build.variant)]
    if options and not of_flavour:
        newest = [option for option in named if option.version.public == named[0].version.public]
        yield ConflictFact(published_as(package, named[0].version.public, newest))
    yield from _told(of_flavour, family, kinds)


def _published_elsewhere(package: str, newest: Option, family: Family) -> ConflictFact:
    """That a package was published for other systems alone."""
    wanted = {build.platform for build in family.catalogue.builds(package) if build.version == newest.build.version}
    systems = [
        f"{system}-{arch}"
        for system, arches in SYSTEMS.items()
        for arch in arches
        if any(same_system(tag, Platform(system, arch)) for tag in wanted)
    ]
    source = family.catalogue.source(newest.build.source)
    text = f"{package} {newest.version.public} was published for {' and '.join(systems)} alone"
    return ConflictFact(text, source.title if source else None)


def _told(options: Sequence[Option], family: Family, kinds: Collection[str]) -> Iterator[ConflictFact]:
    """The failures of builds, those of the first build for each distinct wording."""
    told: dict[str, ConflictFact] = {}
    for option in options:
        failures = option.verdict.failures
        blamed = [reason for reason in failures if _KINDS.get(reason.rule) in kinds] or list(failures[:1])
        if blamed:
            text = "; ".join(reason.text for reason in blamed)
            source = family.catalogue.source(blamed[0].source)
            told.setdefault(blamed[0].text, ConflictFact(f"{option.label}: {text}", source.title if source else None))
    yield from list(told.values())[:_EXAMPLES]


def _for_these(option: Option, family: Family) -> bool:
    """Whether an option was published for the machines' operating systems and architectures at all."""
    pairs = zip(option.builds, family.machines, strict=True)
    return all(same_system(build.platform, machine.platform or Platform()) for build, machine in pairs)
