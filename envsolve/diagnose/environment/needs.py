"""What installed distributions ask of each other, by their metadata, in the environment at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.diagnose.environment.model import Distribution, Environment
from envsolve.machine.model import Machine, Platform
from envsolve.resolve.environment import Environment as Markers


def torch_distribution(environment: Environment) -> Distribution | None:
    """The metadata that lies beside the torch that is imported."""
    torch = environment.torch
    return next((d for d in environment.named("torch") if torch and d.site == torch.site), None)


def needs(environment: Environment, distribution: Distribution | None) -> Mapping[str, Requirement]:
    """What a distribution requires in this environment, extras left out, by normalised name."""
    return {canonicalize_name(r.name): r for r in _applicable(environment, distribution)} if distribution else {}


def _applicable(environment: Environment, distribution: Distribution) -> Iterator[Requirement]:
    minor = ".".join((environment.python or "3.12").split(".")[:2])
    markers = _markers(minor, environment.arch or "x86_64")
    for line in distribution.requires:
        try:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(markers):
                yield requirement
        except (InvalidRequirement, ValueError):
            continue


@lru_cache
def _markers(minor: str, arch: str) -> dict[str, str]:
    """The values of environment markers for the environment's own Python, with no extra asked for."""
    markers = Markers.of(Machine(platform=Platform("linux", arch)), minor).markers
    return {**markers, "extra": ""}


def pinned(requirement: Requirement) -> str:
    """``nvidia-cudnn-cu12==9.10.2.21``: a requirement as an installer takes it, without its marker."""
    return f"{requirement.name}{requirement.specifier}"


def satisfies(version: str | None, specifier: SpecifierSet) -> bool:
    """Whether a version is one that a specifier takes; what is no version is not judged."""
    try:
        return version is None or specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


def release(version: str | None) -> tuple[int, ...]:
    """The numbers of a version, ``(9, 10, 2, 21)``; none where it is no version."""
    try:
        return Version(version or "").release
    except InvalidVersion:
        return ()


def pinned_version(requirement: Requirement) -> str | None:
    """The one version that a requirement takes; None where it takes several."""
    exact = [s.version for s in requirement.specifier if s.operator in ("==", "===") and "*" not in s.version]
    return exact[0] if exact else None
