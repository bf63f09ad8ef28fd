"""A chain of requirements as "because" clauses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.advice.changes import combined_change, for_another_driver, linux_instead, remedies, use_python
from envsolve.advice.published import explain_unpublished, explain_unpublished_variant, published_as, repository_of
from envsolve.advice.relaxations import (
    Trials,
    parties_of,
    proved_siblings,
    relaxations,
    sentences,
    without_one,
    without_parents,
)
from envsolve.advice.torch import page_with_wheels
from envsolve.facts.catalogue import variants
from envsolve.machine.model import Platform
from envsolve.packages.model import PlaceholderError
from envsolve.packages.requirements import Need
from envsolve.rules.platform import SYSTEMS, admits_python, same_system
from envsolve.solve.candidate_selector import CandidateSelector
from envsolve.solve.family import Family, Option
from envsolve.solve.limits import Limit, Limits, best_under, cuda_excluded, gpu_excluded, limits_of
from envsolve.solve.needs import ClaimNeed, PackageNeed, PythonNeed, parsed
from envsolve.solve.outcome import Conflict, ConflictFact, Fix
from envsolve.solve.pins import Cause

# Impossible, well said: the smallest set of facts about machine and request that no torch-family build survives.
#
# Every fact that limits the choice of builds is a *limit* that can be lifted on its own: a requirement, the Python,
# the libc, the driver, the GPUs, a variant. Lifting them one by one and asking whether a build then exists leaves an
# irreducible set: no member can be dropped. The same question, asked with one limit changed, finds the remedies.


_EXAMPLES = 4
# The kind of limit that makes a rule fail; the platform's rule may be that of either of two.
_KINDS = {"driver-floor": "driver", "driver-ptx": "driver", "sass": "gpus", "ptx": "gpus", "libraries": "gpus"}


def explain(family: Family, limits: Limits) -> Conflict | None:
    """The irreducible conflict and its fixes; None if the torch family is not asked for, or has an answer."""
    for name, specifier in limits.asked.items():
        if not any(option.matches(specifier) for option in family.judged(name)):
            return explain_unpublished(name, family, limits)
    if limits.variant and limits.asked and limits.variant not in variants(family.catalogue):
        return explain_unpublished_variant(limits.variant, family, limits)
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
    if not any(remedy.unlocks for remedy in found) and (several := combined_change(family, limits, every)):
        found += (several,)
    return Conflict(tuple(facts), found)


def _pairings(family: Family, limits: Limits, core: Sequence[Limit]) -> Iterator[ConflictFact]:
    """For each package of a conflict with companions: the newest requested version, its variants and its torch."""
    names = [limit.name for limit in core if limit.kind == "asked"]
    for name in names if any(name != "torch" for name in names) else ():
        builds = [o.build for o in family.judged(name) if o.matches(limits.asked[name]) and for_these(o, family)]
        if not builds:
            continue
        newest = [build for build in builds if build.version == builds[0].version]
        variants = ", ".join(sorted({build.variant for build in newest}))
        torch = f", for torch{newest[0].torch}" if newest[0].torch else ""
        text = f"{name} {newest[0].version} is published as {variants}{torch}"
        yield ConflictFact(text, family.catalogue.source_title(newest[0].source))


def _failing_builds(family: Family, limits: Limits, kinds: Collection[str]) -> Iterator[ConflictFact]:
    """Of the builds that the request names, why each does not run: one fact per distinct reason.

    They are those of torch, unless there are packages beside it of which none has code that runs.
    """
    barren = [name for name in limits.asked if name != "torch" and not _is_there(name, limits.asked[name], family)]
    for package in barren or ("torch",):
        yield from failing(package, limits.asked.get(package, SpecifierSet()), family, limits.variant, kinds)


def failing(
    package: str, specifier: SpecifierSet, family: Family, variant: str | None = None, kinds: Collection[str] = ()
) -> Iterator[ConflictFact]:
    """Why builds of a package do not run on the machines: the newest build for each distinct reason.

    Args:
        package: The package.
        specifier: Which of its builds.
        family: The torch family on the machines.
        variant: Only builds of this one.
        kinds: The kinds of limits that are at fault: failures of other kinds are ignored.
    """
    matching = [option for option in family.judged(package) if option.matches(specifier)]
    named = [option for option in matching if for_these(option, family)]
    if matching and not named:
        yield _published_elsewhere(package, matching[0], family)
    if not named:
        return
    with_cuda = [option for option in named if option.build.variant != "cpu"]
    if not with_cuda:
        yield from _told([o for o in matching if o.build.cuda and o not in named][:1], family, ())
    # That a CPU build does not use the GPU is only worth saying where nothing else was asked for.
    of_variant = [option for option in with_cuda or named if variant in (None, option.build.variant)]
    if not of_variant:
        version = named[0].version.public
        yield ConflictFact(published_as(package, version, [o for o in named if o.version.public == version]))
    yield from _told(of_variant, family, kinds)


def _published_elsewhere(package: str, newest: Option, family: Family) -> ConflictFact:
    """The fact that a package was published only for other systems."""
    wanted = {build.made_for for build in family.catalogue.builds(package) if build.version == newest.build.version}
    systems = [
        f"{system}-{arch}"
        for system, arches in SYSTEMS.items()
        for arch in arches
        if any(same_system(tag, Platform(system, arch)) for tag in wanted)
    ]
    text = f"{package} {newest.version.public} was published only for {' and '.join(systems)}"
    return ConflictFact(text, family.catalogue.source_title(newest.build.source))


def _told(options: Sequence[Option], family: Family, kinds: Collection[str]) -> Iterator[ConflictFact]:
    """The failures of builds, those of the first build for each distinct wording."""
    told: dict[str, ConflictFact] = {}
    for option in options:
        failures = option.verdict.failures
        blamed = [reason for reason in failures if _KINDS.get(reason.rule) in kinds] or list(failures[:1])
        if blamed:
            text = "; ".join(reason.text for reason in blamed)
            source = family.catalogue.source_title(blamed[0].source)
            told.setdefault(blamed[0].text, ConflictFact(f"{option.label}: {text}", source))
    yield from list(told.values())[:_EXAMPLES]


def for_these(option: Option, family: Family) -> bool:
    """Whether an option was published for the machines' operating systems and architectures at all."""
    pairs = zip(option.builds, family.machines, strict=True)
    return all(same_system(build.made_for, machine.platform or Platform()) for build, machine in pairs)


_SHOWN = 5


def conflict_report(
    roots: Sequence[Need],
    trials: Trials,
    family: Family,
    selector: CandidateSelector,
    constraints: Mapping[str, SpecifierSet],
) -> Conflict:
    """Explain which requirements conflict, which versions of the package exist, and which requirement could change.

    Args:
        roots: The request.
        trials: Its solves, after the first.
        family: The torch family on the machines.
        selector: The other packages.
        constraints: Constraints on packages, whichever package requires them.
    """
    trials.reduce()
    core, causes = trials.core
    limited = [(canonicalize_name(need.requirement.name),) for need in core if need.requirement.specifier]
    relaxed = tuple(relaxations(roots, limited, family, trials))
    # The conflict holds every version of a package that was tried: the newest and the oldest are enough.
    parties = parties_of(causes)
    newest = [party[0] for party in parties]
    asked = [cause.need for cause in newest if isinstance(cause.need, PackageNeed)]
    facts = [ConflictFact(text) for party in parties for text in sentences(party)]
    failures: list[ConflictFact] = []
    fixes: list[Fix] = []
    for name in dict.fromkeys(need.name for need in asked):
        needs = [need for need in asked if need.key == name]
        about = _about_package(name, needs, constraints.get(name, SpecifierSet()), family, selector)
        facts += map(ConflictFact, about.facts)
        failures += about.failures
        fixes += proved_siblings(about.fixes, roots, trials)
    elsewhere = [Fix(odd.hint) for odd in selector.left_out if isinstance(odd, PlaceholderError) and odd.hint]
    fixes += [*relaxed, *_on_pages(newest, roots, family), *_lacking(newest, family, selector), *elsewhere]
    for about in (*_older_modules(newest, family), *_about_python(newest, family, selector)):
        facts += map(ConflictFact, about.facts)
        failures += about.failures
        fixes += about.fixes
    # A package that has no build here may have sent the solver back through all versions of what needs it.
    for name in family.barren:
        failures += failing(name, SpecifierSet(), family)
        fixes += [*_other_pythons(name, family), *linux_instead(name, family)]
    fixes = fixes or [*without_one(roots, core, trials)] or [*without_parents(newest, roots)]
    return Conflict((*facts, *failures), tuple(dict.fromkeys(fixes)))


class _About(msgspec.Struct):
    """The conflict's text on one package."""

    facts: list[str]
    failures: list[ConflictFact]
    fixes: list[Fix]


def _about_python(newest: Sequence[Cause], family: Family, selector: CandidateSelector) -> Iterator[_About]:
    """The requirement that excludes the environment's Python, if one does, and the Pythons that all of them allow."""
    needed = [cause.need.requires_python for cause in newest if isinstance(cause.need, PythonNeed)]
    if needed:
        environment = selector.environment
        own = environment.full_version if environment.is_exact else environment.python
        allowed = [p for p in family.pythons if all(admits_python(required, p) for required in needed)]
        ways = [use_python(allowed, "")] if allowed else []
        yield _About([f"the environment's Python is {own}"], [], ways)


def _about_package(
    name: str, needs: Sequence[PackageNeed], constraint: SpecifierSet, family: Family, selector: CandidateSelector
) -> _About:
    """The published versions of a package in conflict, and which demand on it could be changed."""
    about = _About([], [], [])
    wanted = _specifier(needs) & constraint
    if str(constraint):
        about.facts.append(f"the constraints limit {name} to {constraint}")
        about.fixes.append(Fix(f"relax the constraint {name}{constraint}"))
    if addresses := [need for need in needs if need.url]:
        about.facts.append(_one_place(name, addresses, wanted))
        about.fixes += _other_places(name, addresses)
        return about
    about.facts += _what_exists(name, wanted, family, selector)
    about.fixes += for_another_driver(name, family, selector)
    if family.owns(name) and not _is_there(name, wanted, family):
        about.failures += failing(name, wanted, family)
        about.fixes += _pythons_with(name, wanted, family)
    return about


def _older_modules(newest: Sequence[Cause], family: Family) -> Iterator[_About]:
    """The Pythons with builds of an older module that a package is made for: ``torchvision<0.17`` beside basicsr."""
    for key in dict.fromkeys(cause.need.key for cause in newest if isinstance(cause.need, ClaimNeed)):
        module = parsed(key)
        if module is None or not module.specifier or not family.follows_torch(module.name):
            continue
        asked = {module.name: module.specifier}
        found = [p for p in family.pythons if any(True for _ in replace(family, python=p).pairings(asked))]
        if not found:
            yield _About([], [*failing(module.name, module.specifier, replace(family, python=None))], [])
        elif family.python not in found:
            fact = f"no {key} for Python {family.python} runs on this machine"
            yield _About([fact], [], [use_python(found, f"{key} has matching files")])


def _lacking(newest: Sequence[Cause], family: Family, selector: CandidateSelector) -> Iterator[Fix]:
    """Other places that have a requested package that no index has."""
    for need in (cause.need for cause in newest if cause.parent is None):
        if (
            isinstance(need, PackageNeed)
            and not need.url
            and not _is_of_family(need.name, need.specifier, family, selector)
        ):
            yield from _found_elsewhere(need, family, selector)


def _on_pages(newest: Sequence[Cause], roots: Sequence[Need], family: Family) -> Iterator[Fix]:
    """The pages of links with wheels of requested packages that no index has, for a torch that the request allows."""
    wanted = SpecifierSet()
    for requirement in (need.requirement for need in roots):
        wanted &= requirement.specifier if canonicalize_name(requirement.name) == "torch" else SpecifierSet()
    torches = [option for option in family.options("torch") if option.matches(wanted)]
    for name in dict.fromkeys(c.need.name for c in newest if isinstance(c.need, PackageNeed) and not c.need.url):
        pages = ((torch, page_with_wheels(name, torch.build, family)) for torch in torches)
        found = next(((torch, page) for torch, page in pages if page), None)
        if found:
            torch, (build, page) = found
            yield Fix(f"add --find-links {page}", unlocks=f"{name} {build.version} for {torch.label}")


def _specifier(needs: Sequence[PackageNeed]) -> SpecifierSet:
    specifier = SpecifierSet()
    for need in needs:
        specifier &= need.specifier
    return specifier


def _is_there(name: str, specifier: SpecifierSet, family: Family) -> bool:
    return any(option.matches(specifier) for option in family.options(name))


def _one_place(name: str, addresses: Sequence[PackageNeed], specifier: SpecifierSet) -> str:
    if len(addresses) > 1:
        return f"a package can come from only one place, but {name} is requested from {len(addresses)}"
    if str(specifier):
        return f"the {name} at {addresses[0].url} does not satisfy {specifier}"
    return f"{name} must come from {addresses[0].url}, and it is not known which packages that build is compatible with"


def _other_places(name: str, addresses: Sequence[PackageNeed]) -> Iterator[Fix]:
    """The change that requests one of several URLs of a package, or a published build."""
    for need in addresses if len(addresses) > 1 else ():
        yield Fix(f"leave out '{need.text}'", unlocks=f"{name} from the other URL")
    if len(addresses) == 1:
        yield Fix(f"request {name} by name, without the URL", unlocks=f"a {name} that the catalogue knows")


def _pythons_with(name: str, specifier: SpecifierSet, family: Family) -> Iterator[Fix]:
    """The Pythons for which a build that is needed is published and runs."""
    found = [python for python in family.pythons if _is_there(name, specifier, replace(family, python=python))]
    if found:
        yield use_python(found, f"{name}{specifier} has matching files")


def _is_of_family(name: str, specifier: SpecifierSet, family: Family, selector: CandidateSelector) -> bool:
    """Whether the catalogue covers the requested versions of a package, and not only the index."""
    return family.owns(name) and (family.knows(name, specifier) or not selector.has(name, specifier))


def _what_exists(name: str, specifier: SpecifierSet, family: Family, selector: CandidateSelector) -> Iterator[str]:
    words = str(specifier).replace(",", " and ")
    owned = _is_of_family(name, specifier, family, selector)
    versions = [option.version for option in family.options(name)] if owned else selector.versions(name)
    shown = ", ".join(dict.fromkeys(version.public for version in versions[:_SHOWN]))
    if not versions and owned:
        yield f"no published {name} can be installed on this machine with this Python"
    elif not versions:
        from difflib import get_close_matches

        near = get_close_matches(name, family.catalogue.family, n=1)
        yield f"no configured index has a project named {name}" + (f"; did you mean {near[0]}?" if near else "")
    elif not any(specifier.contains(version, prereleases=True) for version in versions):
        yield f"no {name} published for this environment satisfies {words}; the newest versions are {shown}"
    elif not owned and (fit := cuda_excluded(name, family)):
        yield f"{name} is built for a CUDA version that does not run on the machine: {fit.reason.text}"
    elif not owned and (whys := _for_no_gpu(name, specifier, family, selector)):
        yield whys[0]
    elif not owned and next(selector.candidates(name, specifier), None) is None:
        python = selector.environment.python
        yield (
            f"no {name} {words}".rstrip() + f" has a file for Python {python} on this platform "
            "(pre-releases are not allowed)"
        )


def _for_no_gpu(name: str, specifier: SpecifierSet, family: Family, selector: CandidateSelector) -> list[str]:
    """Why each release that a specifier takes runs on no GPU of the machines; none if one may run there."""
    whys = [gpu_excluded(name, version, family) for version, _ in selector.candidates(name, specifier)]
    return [why for why in whys if why] if all(whys) else []


def _other_pythons(name: str, family: Family) -> Iterator[Fix]:
    """The Pythons for which a torch that runs, and a build of the package that it needs, are published."""
    tried = ((python, _torch_with(name, replace(family, python=python))) for python in family.pythons)
    pairs = [(python, torch) for python, torch in tried if torch is not None]
    if pairs:
        yield use_python([python for python, _ in pairs], pairs[-1][1].label)


def _torch_with(name: str, family: Family) -> Option | None:
    builds = family.options(name)
    for torch in family.options("torch"):
        needed = [need.specifier for need in map(Requirement, torch.build.requires or ()) if need.name == name]
        if any(all(build.matches(specifier) for specifier in needed) for build in builds):
            return torch
    return None


def _found_elsewhere(need: PackageNeed, family: Family, selector: CandidateSelector) -> Iterator[Fix]:
    """Other places for a requested package that the indexes do not have for this environment."""
    versions = selector.versions(need.name)
    repository = repository_of(need.name, family.catalogue)
    if repository and next(selector.candidates(need.name, SpecifierSet()), None) is None:
        yield Fix(f"request '{need.name} @ {repository}'", unlocks="its sources, which pip or uv then compiles")
    if not versions:
        yield Fix("check the name, or add the index that has the package: --extra-index-url URL")
        return
    if next(selector.candidates(need.name, need.specifier), None) is not None:
        return
    pythons = [python for python in family.pythons if selector.served(need.name, need.specifier, python)]
    if pythons:
        yield use_python(pythons, f"{need.text} has matching files")
