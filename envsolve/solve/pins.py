"""Conclusions from the pins of a request, before any search."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import structs
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from resolvelib.structs import build_iter_view

from envsolve.errors import IndexUnavailableError
from envsolve.machine.model import Machine
from envsolve.packages.client import IndexClient
from envsolve.packages.model import read_version
from envsolve.packages.requirements import Asked, Need
from envsolve.rules.judge import python_of
from envsolve.rules.platform import Environment, admits_python, python_tag
from envsolve.solve.candidate_selector import CandidateSelector
from envsolve.solve.family import Family
from envsolve.solve.limits import without_variant
from envsolve.solve.needs import CUDA_MAJOR, AnyCandidate, AnyNeed, Candidate, ClaimNeed, PackageNeed
from envsolve.solve.provider import Provider
from envsolve.values import PythonVersion

# A package that the request limits to so few versions is as good as pinned.
_FEW = 2
# What keeps a package at releases that were made before the newest Pythons.
_BOUNDING = frozenset({"==", "===", "<", "<=", "~="})

# Which Python a plan is for, if neither the request nor the machine names one.


def choose_python(asked: Asked, machines: Sequence[Machine], family: Family, client: IndexClient | None = None) -> str:
    """Return the machine's own Python or, if the projects do not allow it, the first with builds of what is requested.

    The builds must run there. If none do, builds that are only published for a Python will do, since a refusal should
    not be about a Python that nobody asked for. Among these, a Python that the pinned releases of other packages have
    wheels for goes before one for which they must be built: ``numpy==1.24.3`` is a wheel up to 3.11.

    Args:
        asked: Requirements; their ``requires-python`` limits the choice.
        machines: The machines of the plan. Of the Pythons, those installed on all of them come first.
        family: The torch family on the machines, judged without regard to Python.
        client: The indexes that list the wheels; None to look at the family only.
    """
    own = python_of(machines)
    if own and admits_python(asked.requires_python, own):
        return own
    pythons = _candidate_pythons(machines, family)
    wanted = [(canonicalize_name(n.requirement.name), n.requirement.specifier) for n in asked.needs]
    # What the catalogue lacks in every variant says nothing about Pythons.
    of_family = [(n, s) for n, s in wanted if family.owns(n) and family.knows(n, without_variant(s))]
    running = (p for p in pythons if all(_runs(structs.replace(family, python=p), *demand) for demand in of_family))
    # To judge all builds for a Python takes 10 ms: the others are judged only if wheels may decide among them.
    bounded = _bounded(asked, pythons, family) if client is not None else {}
    suitable = list(running if any(bounded.values()) else islice(running, 1)) or [
        p for p in pythons if all(_published(family, p, *demand) for demand in of_family)
    ]
    if client is None or len(suitable) < 2:
        return (suitable or pythons)[0]
    return _with_most_wheels(suitable, bounded, family, client)


def _bounded(asked: Asked, pythons: Sequence[str], family: Family) -> dict[str, dict[str, SpecifierSet]]:
    """By Python, the packages outside the family that the request bounds from above there."""
    return {python: _bounded_on(asked, Environment.of(family.machines[0], python), family) for python in pythons}


def _bounded_on(asked: Asked, environment: Environment, family: Family) -> dict[str, SpecifierSet]:
    every: dict[str, SpecifierSet] = {}
    named = {canonicalize_name(need.requirement.name) for need in asked.needs}
    for requirement in (need.requirement for need in (*asked.needs, *asked.constraints)):
        name = canonicalize_name(requirement.name)
        here = requirement.url is None and name in named and not family.owns(name)
        if here and environment.wants(requirement.marker):
            every[name] = every.get(name, SpecifierSet()) & requirement.specifier
    return {n: s for n, s in every.items() if any(one.operator in _BOUNDING for one in s)}


def _with_most_wheels(
    pythons: Sequence[str],
    bounded: Mapping[str, Mapping[str, SpecifierSet]],
    family: Family,
    client: IndexClient,
) -> str:
    """The first Python for which the fewest of the packages that the request bounds there lack a file, or a wheel."""
    environments = [Environment.of(family.machines[0], python) for python in pythons]
    client.prefetch(dict.fromkeys(name for python in pythons for name in bounded[python]))
    scout = CandidateSelector(client, environments[0], {}, (), family.exclude_newer)
    lacking = {python: [0, 0, 0] for python in pythons}
    for environment in environments:
        for package, specifier in bounded[environment.python].items():
            with contextlib.suppress(IndexUnavailableError):
                lacking[environment.python][scout.lacks_wheel(package, specifier, environment, environments)] += 1
    return min(lacking, key=lambda python: (lacking[python][2], lacking[python][1]))


def python_with_wheels(
    built: Mapping[str, str],
    python: str,
    machines: Sequence[Machine],
    family: Family,
    client: IndexClient,
    *,
    needs_torch: bool,
) -> tuple[tuple[str, ...], str]:
    """Packages limited to releases older than a Python, and the Python with wheels for most of them.

    Such a release has wheels for older Pythons, and later ones have wheels for this one: its sdist was never tried
    with it. What has no later wheels may well build.

    Args:
        built: Versions of the packages of a plan that are built from an sdist.
        python: The Python of the plan.
        machines: The machines of the plan.
        family: Its projects' ``requires-python`` limits the choice.
        client: The indexes that list the wheels.
        needs_torch: Whether only Pythons with a torch that runs on the machines count.
    """
    pythons = _candidate_pythons(machines, family)
    if needs_torch:
        running = [one for one in pythons if _runs(structs.replace(family, python=one), "torch", SpecifierSet())]
        pythons = running or pythons
    others = [Environment.of(machines[0], one) for one in pythons]
    here = Environment.of(machines[0], python)
    scout = CandidateSelector(client, here, {}, (), family.exclude_newer)
    old: dict[str, SpecifierSet] = {}
    for name, version in built.items():
        pin, later = SpecifierSet(f"=={version}"), SpecifierSet(f">{version}")
        with contextlib.suppress(IndexUnavailableError):
            if scout.lacks_wheel(name, pin, here, others) and scout.has_wheel(name, later, here):
                old[name] = pin
    lacking = {one.python: sum(not scout.has_wheel(name, pin, one) for name, pin in old.items()) for one in others}
    return tuple(old), min(pythons, key=lambda one: lacking[one])


def _candidate_pythons(machines: Sequence[Machine], family: Family) -> list[str]:
    """The Pythons that the projects allow (all, if they allow none of those with builds), installed ones first."""
    installed = [{str(PythonVersion.parse(one.version)) for one in m.pythons} for m in machines if m.pythons]
    known = family.catalogue.pythons
    allowed = [python for python in known if python in family.pythons]
    return sorted(allowed or known, key=lambda python: not all(python in some for some in installed))


def _runs(family: Family, name: str, specifier: SpecifierSet) -> bool:
    return any(option.matches(specifier) for option in family.options(name))


def _published(family: Family, python: str, name: str, specifier: SpecifierSet) -> bool:
    """Whether a requested package has a build for a Python, in any variant if no build has the requested one."""
    options = family.judged(name)
    met = [o for o in options if o.matches(specifier)] or [o for o in options if o.matches(without_variant(specifier))]
    return any(python_tag(build.pythons, python) for option in met for build in option.builds)


def pins_of(needs: Sequence[Need], package: str) -> SpecifierSet:
    """The specifiers of needs on a package if they pin it, otherwise none."""
    specifiers = [n.requirement.specifier for n in needs if canonicalize_name(n.requirement.name) == package]
    together = SpecifierSet(",".join(map(str, filter(None, specifiers))))
    return together if any(one.operator == "==" for one in together) else SpecifierSet()


class Cause(msgspec.Struct, frozen=True):
    """One need that takes part in a conflict, and who has it (None: the request itself)."""

    need: AnyNeed
    parent: AnyCandidate | None


class Pins:
    """What pins of a request settle: needs that follow from them, and whether two exclude each other.

    In a list of two hundred pins (``pip freeze``) a search may come upon the contradiction last, and then tries every
    variant of every GPU package again and again: 30 s instead of 1 s, with a cause that has nothing to do with it. And
    a pin that brings in an old torch by way of an extra (``sglang[all]==0.5.2``) is met after a newer torch was chosen.

    Attributes:
        causes: Two needs that exclude each other; empty if none do.
        following: Needs of the torch family that pinned packages have.
    """

    def __init__(self, provider: Provider, roots: Sequence[PackageNeed]) -> None:
        self.causes: list[Cause] = []
        self.following: list[PackageNeed] = []
        self._provider = provider
        self._pins: dict[str, Cause] = {}  # by name
        self._found: dict[str, list[Candidate]] = {}
        waiting = [Cause(need, None) for need in roots]
        self._contradict(waiting)
        while waiting and not self.causes:
            pins = [cause for cause in waiting if isinstance(cause.need, PackageNeed) and self._is_pin(cause)]
            self._pins |= {cause.need.key.partition("[")[0]: cause for cause in reversed(pins)} | self._pins
            # All are looked up before the first is read, so that their metadata is fetched at the same time.
            new = [key for key in map(self._look_up, waiting) if key]
            waiting = [cause for key in new for cause in self._needs_of(key)]
            self.following += [
                cause.need
                for cause in waiting
                if isinstance(cause.need, PackageNeed) and provider.family.owns(cause.need.name)
            ]
        if not self.causes:
            self._clash()

    def _clash(self) -> None:
        """Whether two pinned packages cannot be beside each other: numpy 2 and what was compiled against numpy 1."""
        held: dict[str, tuple[ClaimNeed, Candidate]] = {}
        for key, (first, *others) in ((key, found) for key, found in self._found.items() if found and "[" not in key):
            for claim in self._provider.claims(first):
                # Libraries of two CUDA majors are taken if nothing avoids them.
                if claim.key == CUDA_MAJOR or not all(claim in self._provider.claims(one) for one in others):
                    continue
                other, holder = held.setdefault(claim.key, (claim, first))
                if other.holder != claim.holder and not self.causes:
                    pins = (self._pins[holder.name], self._pins[key])
                    self.causes = [Cause(other, holder), pins[0], Cause(claim, first), pins[1]]

    def _contradict(self, roots: Sequence[Cause]) -> None:
        """Whether the request excludes by itself what it pins: ``accelerate==0.23.0`` beside ``accelerate<0.23``."""
        for pin in roots:
            versions = [v for v in map(read_version, _pinned(pin.need)) if v is not None]
            for other in roots:
                if not isinstance(other.need, PackageNeed) or other.need.key != pin.need.key or not versions:
                    continue
                # A pin without a variant goes with one that names it: 2.6.0 and 2.6.0+cu118.
                versions += [v for v in map(read_version, _pinned(other.need)) if v and Version(v.public) in versions]
                if not any(other.need.specifier.contains(version, prereleases=True) for version in versions):
                    self.causes = [other, pin]

    def _is_pin(self, cause: Cause) -> bool:
        """Whether one version, or one of very few that the request allows, is what a need can only have."""
        need = cause.need
        if not isinstance(need, PackageNeed) or need.url or need.extra or self._provider.family.owns(need.name):
            return bool(_pinned(need))
        bounded = any(one.operator in ("<", "<=", "~=", "==") for one in need.specifier)
        if cause.parent is not None or not bounded or _pinned(need):
            return bool(_pinned(need))
        with contextlib.suppress(IndexUnavailableError):
            matches = self._provider.find_matches(need.key, {need.key: iter([need])}, {need.key: iter(())})
            return len(list(islice(build_iter_view(matches), _FEW + 1))) <= _FEW
        return False

    def _look_up(self, cause: Cause) -> str | None:
        """The key of a need of a pinned package, if it is new."""
        need, pin = cause.need, self._pins.get(cause.need.key.partition("[")[0])
        if pin is None or not isinstance(need, PackageNeed) or need.url or need.key in self._found:
            return None
        self._found[need.key] = []
        with contextlib.suppress(IndexUnavailableError):
            pinned = structs.replace(pin.need, extra=need.extra)
            matches = self._provider.find_matches(need.key, {need.key: iter([pinned])}, {need.key: iter(())})
            found = [one for one in build_iter_view(matches) if isinstance(one, Candidate)]
            # The requirements of a build of the family may only be known once its index is asked.
            if all(one.option is None or one.option.build.requires is not None for one in found):
                self._found[need.key] = found
        return need.key

    def _needs_of(self, key: str) -> list[Cause]:
        """The needs of all candidates of a pinned package; sets ``causes`` if none of them can be."""
        needs: list[dict[tuple[str, str], Cause]] = []
        refuted: list[Cause | None] = []
        for candidate in self._found[key]:
            with contextlib.suppress(IndexUnavailableError):
                own = [n for n in self._provider.get_dependencies(candidate) if isinstance(n, PackageNeed)]
                needs.append({(need.key, need.text): Cause(need, candidate) for need in own})
                refuted.append(next((cause for cause in needs[-1].values() if self._excludes(cause)), None))
        if len(needs) < len(self._found[key]) or not needs:
            return []
        if all(refuted) and (cause := refuted[0]) is not None:
            self.causes = [cause, self._pins[cause.need.key.partition("[")[0]]]
        return [cause for own, cause in needs[0].items() if all(own in other for other in needs)]

    def _excludes(self, cause: Cause) -> bool:
        others = self._found.get(cause.need.key, ())
        return bool(others) and not any(self._provider.is_satisfied_by(cause.need, other) for other in others)


def _pinned(need: AnyNeed) -> list[str]:
    """The version that a need pins, in a list; empty if it pins none."""
    if not isinstance(need, PackageNeed) or need.url:
        return []
    pins = [one.version for one in need.specifier if one.operator in ("==", "===")]
    return [version for version in pins if not version.endswith(".*")]
