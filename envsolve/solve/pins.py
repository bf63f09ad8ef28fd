"""What the pins of a request settle before any search."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import islice

import msgspec
from msgspec import structs
from resolvelib.structs import build_iter_view

from envsolve.errors import IndexUnavailableError
from envsolve.packages.model import read_version
from envsolve.solve.needs import CUDA_MAJOR, AnyCandidate, AnyNeed, Candidate, ClaimNeed, PackageNeed
from envsolve.solve.provider import Provider

# A package that the request limits to so few versions is as good as pinned.
_FEW = 2


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
        """What all candidates of a pinned package need; sets ``causes`` if none of them can be."""
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
