"""What an installer was asked for and did not find, looked up in the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.facts.builds import Build
from envsolve.machine.model import Platform
from envsolve.rules.platform import libc_needed, libc_of, libc_serves, python_fits, same_system


@dataclass(frozen=True, slots=True)
class Asked:
    """One package that was not found.

    Attributes:
        name: The normalised name.
        wanted: The versions asked for, ``==2.9.1+cu124``; empty for any.
        known: The builds of that name that the catalogue has.
        meant: Those of the versions asked for.
        here: Those of them that are for the machine's system and architecture.
        fitting: Those of them that are for its Python, where that is known.
        libc: The oldest C library that a build of ``fitting`` runs on, where the machine's is older than all of them.
    """

    match: Match
    name: str
    wanted: str
    known: tuple[Build, ...]
    meant: tuple[Build, ...]
    here: tuple[Build, ...]
    fitting: tuple[Build, ...]
    libc: tuple[str, tuple[int, int]] | None

    @property
    def words(self) -> str:
        """``torch==2.9.1+cu124``."""
        return f"{self.name}{self.wanted}"

    def takes(self, version: str) -> bool:
        """Whether a version is among those asked for."""
        try:
            return SpecifierSet(self.wanted).contains(version, prereleases=True)
        except InvalidSpecifier:
            return False


def asked_for(scene: Scene) -> Asked | None:
    """The first package that pip or uv say they did not find; None where they say it of none."""
    match = scene.first("pip-none", "uv-none")
    if match is None:
        return None
    name = canonicalize_name(match.group("package", "name", "absent") or "")
    wanted = match.group("specifier", "wanted") or ""
    platform = scene.machine.platform or Platform()
    known = scene.catalogue.builds(name)
    meant = tuple(build for build in known if _answers(build, wanted))
    here = tuple(build for build in meant if same_system(build.platform, platform))
    fitting = tuple(build for build in here if scene.python is None or python_fits(build.pythons, scene.python).ok)
    return Asked(match, name, wanted, tuple(known), meant, here, fitting, _too_new(fitting, platform))


def _answers(build: Build, wanted: str) -> bool:
    try:
        specifier = SpecifierSet(wanted)
    except InvalidSpecifier:
        return False
    return specifier.contains(build.version, prereleases=True) or specifier.contains(
        f"{build.version}+{build.variant}", prereleases=True
    )


def _too_new(builds: tuple[Build, ...], platform: Platform) -> tuple[str, tuple[int, int]] | None:
    """What the builds need, where the machine's C library serves none of them."""
    have = libc_of(platform)
    needs = [need for build in builds if (need := _needed(build))]
    if have is None or len(needs) < len(builds) or any(libc_serves(have, need) for need in needs):
        return None
    return min(needs, key=lambda need: need[1], default=None)


def _needed(build: Build) -> tuple[str, tuple[int, int]] | None:
    """The newer of what a build's platform tag and its libraries ask for."""
    both = (libc_needed(build.platform), libc_of(Platform(libc=build.libc)))
    return max(filter(None, both), key=lambda need: need[1], default=None)
