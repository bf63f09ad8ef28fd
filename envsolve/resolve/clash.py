"""A clash of requirements put into a chain of "because"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.specifiers import SpecifierSet

from envsolve.resolve.family import Family
from envsolve.resolve.needs import AnyCandidate, Candidate, FlavourNeed, PackageNeed
from envsolve.resolve.outcome import Conflict, ConflictFact, Remedy
from envsolve.resolve.pool import Pool
from envsolve.resolve.solve import Clash

_SHOWN = 5


def describe_clash(clashes: Sequence[Clash], family: Family, pool: Pool) -> Conflict:
    """Say which needs exclude each other, what exists of the package that they fight about, and what could give way."""
    facts = [ConflictFact(text) for text in dict.fromkeys(_sentence(clash) for clash in clashes)]
    for name in dict.fromkeys(c.need.name for c in clashes if isinstance(c.need, PackageNeed)):
        specifier = SpecifierSet()
        for clash in clashes:
            if isinstance(clash.need, PackageNeed) and clash.need.name == name:
                specifier &= clash.need.specifier
        facts += [ConflictFact(text) for text in _what_exists(name, specifier, family, pool)]
    return Conflict(tuple(facts), tuple(_remedies(clashes)))


def _sentence(clash: Clash) -> str:
    if isinstance(clash.need, PackageNeed) and clash.parent is None:
        return f"{clash.need.text} was asked for ({clash.need.origin})"
    if clash.parent is None:
        return f"{clash.need.text} was asked for"
    if isinstance(clash.need, FlavourNeed):
        return f"{_label(clash.parent)} is built for {' or '.join(sorted(clash.need.variants))}"
    return f"{_label(clash.parent)} needs {clash.need.text}"


def _label(candidate: AnyCandidate) -> str:
    return candidate.label if isinstance(candidate, Candidate) else candidate.variant


def _what_exists(name: str, specifier: SpecifierSet, family: Family, pool: Pool) -> Iterator[str]:
    if family.owns(name):
        versions = [option.version for option in family.options(name)]
    else:
        versions = pool.versions(name)
        if not versions:
            yield f"no configured index has a project named {name}"
            return
    fitting = [v for v in versions if specifier.contains(v, prereleases=True)]
    shown = ", ".join(dict.fromkeys(v.public for v in (fitting or versions)[:_SHOWN]))
    if not versions:
        yield f"no published {name} installs on this machine and Python"
    elif not fitting:
        yield f"no {name} that installs here is {str(specifier).replace(',', ' and ')}; the newest are {shown}"
    elif not any(True for _ in pool.candidates(name, specifier)) and not family.owns(name):
        python = pool.environment.python
        yield f"{name} {shown} has no file for Python {python} on this platform that is not a pre-release"


def _remedies(clashes: Sequence[Clash]) -> Iterator[Remedy]:
    """What the request itself could give up: each requirement that was asked for and stands in the way of another."""
    for clash in clashes:
        if not isinstance(clash.need, PackageNeed) or clash.parent is not None or not str(clash.need.specifier):
            continue
        rivals = [c for c in clashes if c.parent and isinstance(c.need, PackageNeed) and c.need.name == clash.need.name]
        for rival in rivals:
            yield Remedy(f"ask for {_pin(rival)} instead of {clash.need.text}", _label_of_parent(rival))


def _pin(clash: Clash) -> str:
    return clash.need.text


def _label_of_parent(clash: Clash) -> str:
    assert clash.parent is not None
    return _label(clash.parent)
