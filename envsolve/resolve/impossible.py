"""Impossible, well said: the smallest set of facts about machine and request that no torch-family build survives.

Every fact that limits the choice of builds is a *limit* that can be lifted on its own: a requirement, the Python, the
libc, the driver, the cards, a flavour. Lifting them one by one and asking whether a build then exists leaves an
irreducible set: no member can be dropped. The same question, asked with one limit changed, finds the remedies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.compat.life import can_exist
from envsolve.compat.platform import same_system
from envsolve.compat.verdict import Level
from envsolve.compat.versions import reaches
from envsolve.machine.model import Driver, Machine, Platform
from envsolve.resolve.family import Family, Option
from envsolve.resolve.outcome import Conflict, ConflictFact, Remedy

#: CPython versions that a remedy may propose: those that torch was ever published for.
_PYTHONS = tuple(f"3.{minor}" for minor in range(7, 16))
_GLIBC_OF_REMEDY = "glibc 2.28"
_EXAMPLES = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """What limits the choice of torch-family builds.

    Attributes:
        asked: Specifiers on family packages, by name.
        flavour: A CUDA flavour that was asked for.
    """

    asked: Mapping[str, SpecifierSet]
    flavour: str | None


@dataclass(frozen=True, slots=True)
class _Limit:
    kind: str
    name: str
    fact: str


def explain(family: Family, limits: Limits) -> Conflict | None:
    """The irreducible conflict and its remedies; None where the torch family is not asked for, or has an answer."""
    for name, specifier in limits.asked.items():
        if not any(option.matches(specifier) for option in family.judged(name)):
            return _undescribed(name, specifier, family)
    every = tuple(_limits_of(family, limits))
    if not limits.asked or _best(family, limits, every) is not None:
        return None
    core = list(every)
    for limit in every:
        rest = [other for other in core if other is not limit]
        if _best(family, limits, rest) is None:
            core = rest
    facts = [ConflictFact(limit.fact) for limit in core]
    facts += _pairings(family, limits, core)
    facts += _failing_builds(family, limits)
    return Conflict(tuple(facts), tuple(_remedies(family, limits, every, core)))


def _undescribed(name: str, specifier: SpecifierSet, family: Family) -> Conflict:
    """A requirement that no build in the catalogue meets, whatever the machine."""
    versions = sorted({option.version.public for option in family.judged(name)}, key=Version)
    known = f"{versions[0]} to {versions[-1]}" if versions else "none published before the date that was asked for"
    facts = (
        ConflictFact(f"{name}{specifier} was asked for"),
        ConflictFact(f"the builds of {name} that are known: {known}, and none of them is {specifier}"),
    )
    remedies = (Remedy(f"relax {name}{specifier}", f"{name} {versions[-1]}"),) if versions else ()
    return Conflict(facts, remedies)


def _limits_of(family: Family, limits: Limits) -> Iterator[_Limit]:
    # Order matters to what is dropped first: what is most worth telling stands last.
    if limits.flavour:
        yield _Limit("flavour", limits.flavour, f"the CUDA flavour {limits.flavour} was asked for")
    for machine in family.machines:
        if machine.platform and machine.platform.libc:
            yield _Limit("libc", "", f"the machine has {machine.platform.libc}")
            break
    if family.python:
        yield _Limit("python", family.python, f"the environment's Python is {family.python}")
    drivers = {d.version or f"for CUDA {d.cuda}" for m in family.machines if (d := m.driver) and (d.version or d.cuda)}
    if drivers:
        yield _Limit("driver", "", f"the machine has driver {', '.join(sorted(drivers))}")
    cards = dict.fromkeys(
        f"{gpu.label}, which needs code that {gpu.cc.sm} runs"
        for m in family.machines
        for gpu in m.gpus or ()
        if gpu.cc
    )
    if cards:
        yield _Limit("gpus", "", "the machine has " + " and ".join(cards))
    elif family.wants_cpu:
        yield _Limit("gpus", "", "the machine has no NVIDIA GPU")
    for name, specifier in sorted(limits.asked.items(), key=lambda pair: pair[0] == "torch"):
        if str(specifier) or name != "torch":
            yield _Limit("asked", name, f"{name}{specifier} was asked for")


def _best(family: Family, limits: Limits, kept: Sequence[_Limit]) -> tuple[Option, ...] | None:
    """The best torch option under the kept limits, then the best matching one of every companion that was asked for."""
    kinds = {limit.kind for limit in kept}
    names = {limit.name for limit in kept if limit.kind == "asked"}
    loose = replace(
        family,
        python=family.python if "python" in kinds else None,
        machines=tuple(_loosened(machine, kinds) for machine in family.machines),
    )
    # Lifting a limit relaxes the specifier of a requirement; one that has none is given up.
    asked = {
        name: specifier if name in names else SpecifierSet()
        for name, specifier in limits.asked.items()
        if name in names or str(specifier)
    }
    for options in loose.pairings(asked):
        if "flavour" not in kinds or options[0].build.variant == limits.flavour:
            return options
    return None


def _loosened(machine: Machine, kinds: set[str]) -> Machine:
    platform = machine.platform or Platform()
    return replace(
        machine,
        platform=platform if "libc" in kinds else replace(platform, libc=None),
        driver=machine.driver if "driver" in kinds else None,
        gpus=machine.gpus if "gpus" in kinds else None,
    )


def _pairings(family: Family, limits: Limits, core: Sequence[_Limit]) -> Iterator[ConflictFact]:
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
    """Of the builds that the request names, why each does not run: one fact per distinct reason."""
    specifier = limits.asked.get("torch", SpecifierSet())
    told: dict[str, ConflictFact] = {}
    for option in family.judged("torch"):
        if not option.matches(specifier) or option.build.variant == "cpu" or not _for_these(option, family):
            continue
        if limits.flavour and option.build.variant != limits.flavour:
            continue
        for reason in option.verdict.failures[:1]:
            source = family.catalogue.source(reason.source)
            label = f"torch {option.build.version} [{option.build.variant}]"
            told.setdefault(reason.text, ConflictFact(f"{label}: {reason.text}", source.title if source else None))
    yield from list(told.values())[:_EXAMPLES]


def _for_these(option: Option, family: Family) -> bool:
    """Whether an option was published for the machines' operating systems and architectures at all."""
    pairs = zip(option.builds, family.machines, strict=True)
    return all(same_system(build.platform, machine.platform or Platform()) for build, machine in pairs)


def _remedies(family: Family, limits: Limits, every: Sequence[_Limit], core: Sequence[_Limit]) -> Iterator[Remedy]:
    """Changes to one limit of the conflict that let a build through, the cheapest first."""
    kinds = {limit.kind for limit in core}
    yield from _relaxations(family, limits, every, core)
    if "python" in kinds:
        others = [(p, best) for p in _PYTHONS if (best := _best(replace(family, python=p), limits, every))]
        if others:
            names = ", ".join(p for p, _ in others)
            yield Remedy(f"use another Python: {names}", _named(others[-1][1]))
    if "driver" in kinds:
        yield from _driver_remedy(family, limits, every)
    if "libc" in kinds:
        newer = [replace(m, platform=replace(m.platform or Platform(), libc=_GLIBC_OF_REMEDY)) for m in family.machines]
        best = _best(replace(family, machines=tuple(newer)), limits, every)
        if best is not None:
            yield Remedy(f"run in a container, or on a system, with {_GLIBC_OF_REMEDY} or newer", _named(best))


def _relaxations(family: Family, limits: Limits, every: Sequence[_Limit], core: Sequence[_Limit]) -> Iterator[Remedy]:
    """One demand of the request changed or, where one is not enough, all demands on the family together.

    A demand without a specifier can only be given up, which costs more than relaxing another.
    """
    own = [limit for limit in every if limit.kind in ("asked", "flavour")]
    single = sorted((limit for limit in own if limit in core), key=lambda limit: not _relaxable(limit, limits))
    remedies = [remedy for limit in single if (remedy := _without(family, limits, every, [limit]))]
    together = _without(family, limits, every, own) if own and not remedies else None
    yield from remedies or filter(None, [together])


def _without(family: Family, limits: Limits, every: Sequence[_Limit], given_up: Sequence[_Limit]) -> Remedy | None:
    best = _best(family, limits, [limit for limit in every if limit not in given_up])
    if best is None:
        return None
    verb = "relax" if all(_relaxable(limit, limits) for limit in given_up) else "give up"
    return Remedy(f"{verb} " + " and ".join(_demand(limit, limits) for limit in given_up), _named(best))


def _relaxable(limit: _Limit, limits: Limits) -> bool:
    return limit.kind == "flavour" or bool(str(limits.asked[limit.name]))


def _demand(limit: _Limit, limits: Limits) -> str:
    return f"--cuda {limit.name}" if limit.kind == "flavour" else f"{limit.name}{limits.asked[limit.name]}"


def _driver_remedy(family: Family, limits: Limits, every: Sequence[_Limit]) -> Iterator[Remedy]:
    """The oldest driver branch that lets a build through and drops none of the cards."""
    for branch in family.catalogue.drivers:
        driver = Driver(branch.first, branch.cuda)
        if any(m.driver and m.driver.version and not reaches(branch.first, m.driver.version) for m in family.machines):
            continue
        serves = [can_exist(g, driver, family.facts.architectures).ok for m in family.machines for g in m.gpus or ()]
        if False in serves:
            continue
        best = _best(replace(family, machines=tuple(replace(m, driver=driver) for m in family.machines)), limits, every)
        if best is not None:
            yield Remedy(f"install driver {branch.first} or newer (branch R{branch.branch})", _named(best))
            return


def _named(options: Sequence[Option]) -> str:
    torch, *companions = options
    level = "" if torch.verdict.level in (Level.NATIVE, Level.FAMILY) else f" ({torch.verdict.level.value})"
    others = ", ".join(f"{o.build.package} {o.build.version}" for o in companions)
    return f"torch {torch.build.version} [{torch.build.variant}]{level}" + (f" with {others}" if others else "")
