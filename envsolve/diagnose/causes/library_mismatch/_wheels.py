"""Wheels of GPU libraries that overwrite each other, or are not those that torch pins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import PurePosixPath

from packaging.requirements import Requirement

from envsolve.binaries.library import LIBRARY_FILE
from envsolve.diagnose.causes._shared import Cause
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.environment.model import (
    Distribution,
    Environment,
    needs,
    pinned,
    pinned_version,
    release,
    satisfies,
    torch_distribution,
)

_CAUSE = Cause("library-mismatch")
_WHEEL = re.compile(r"nvidia-[a-z0-9-]+")


def overlapping_wheels(environment: Environment) -> Iterator[Finding]:
    """The first fault among the wheels; overlaps explain the rest."""
    wheels = [d for d in environment.distributions if _WHEEL.fullmatch(d.name)]
    wanted = needs(environment, torch_distribution(environment))
    found = chain(_overlaps(environment, wheels), _twice(wheels, wanted), _others(wheels, wanted))
    return islice(found, 1)


def _overlaps(environment: Environment, wheels: Sequence[Distribution]) -> Iterator[Finding]:
    """A wheel that something requires, whose library another wheel has overwritten."""
    for one in wheels:
        claimed = {path for path in one.altered if LIBRARY_FILE.search(path)}
        for other in wheels if claimed else ():
            shared = sorted(claimed & set(other.files or ())) if other.site == one.site and other is not one else []
            asking = [d for d in environment.distributions if one.name in needs(environment, d)] if shared else []
            if asking:
                keeps = [d for d in environment.distributions if other.name in needs(environment, d)]
                evidence = (
                    f"{one.site}/{shared[0]}: of another size than {PurePosixPath(one.info).name}/RECORD says",
                    f"{one.info}: {one.label}, which {asking[0].label} requires",
                    f"{other.info}: {other.label}, which has the same files",
                )
                values = {"one": one.label, "other": other.label, "file": shared[0], "asks": asking[0].label}
                yield _CAUSE.finding("overlap", Grounds.READ, evidence, _untangle(one, other, keeps), **values)


def _untangle(one: Distribution, other: Distribution, keeps: Sequence[Distribution]) -> Iterator[Fix]:
    pin = f"{one.name}=={one.version}"
    if not keeps:
        yield _CAUSE.fix("remove-other", other=other.name, one=one.label, pin=pin)
        return
    names = " and ".join(dict.fromkeys(d.label for d in keeps))
    yield _CAUSE.fix("put-back", one=one.label, names=names, pin=pin)
    yield _CAUSE.fix("separate", names=names, other=other.name)


def _twice(wheels: Sequence[Distribution], wanted: Mapping[str, Requirement]) -> Iterator[Finding]:
    """A wheel with two records in one directory."""
    for name in dict.fromkeys(d.name for d in wheels):
        same = [d for d in wheels if d.name == name and d.site == next(w.site for w in wheels if w.name == name)]
        if len(same) > 1:
            newest = max(same, key=lambda d: release(d.version))
            keep = pinned(wanted[name]) if name in wanted else f"{name}=={newest.version}"
            # pip removes one record at a time.
            removals = " && ".join([f"pip uninstall -y {name}"] * len(same))
            fix = _CAUSE.fix("remove-both", keep=keep, removals=removals)
            versions = " and ".join(d.version or "?" for d in same)
            evidence = (f"{d.info}: {d.label}" for d in same)
            yield _CAUSE.finding("twice", Grounds.READ, evidence, [fix], name=name, versions=versions)


def _others(wheels: Sequence[Distribution], wanted: Mapping[str, Requirement]) -> Iterator[Finding]:
    """Pinned libraries that are installed in an older release or another major; a newer one of the same major works."""
    found = []
    for name, requirement in wanted.items():
        have = next((d for d in wheels if d.name == name), None)
        pin = pinned_version(requirement)
        if have is None or pin is None or satisfies(have.version, requirement.specifier):
            continue
        got, need = release(have.version), release(pin)
        if got and (got < need or got[0] != need[0]):
            found.append((have, requirement, "which is older" if got < need else "which is another major"))
    if not found:
        return
    have, requirement, how = found[0]
    evidence = (f"{d.info}: {d.label}, and torch pins {r.specifier}" for d, r, _ in found)
    fix = _CAUSE.fix("pinned", pins=" ".join(pinned(r) for _, r, _ in found))
    # If only the numbers after the second differ, that mostly does no harm.
    far = any(release(d.version)[:2] != release(pinned_version(r))[:2] for d, r, _ in found)
    grounds = Grounds.READ if far else Grounds.NOTICED
    yield _CAUSE.finding("pinned", grounds, evidence, [fix], pin=pinned(requirement), have=have.label, how=how)
