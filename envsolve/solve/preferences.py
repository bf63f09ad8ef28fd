"""Preferences of the solve, never requirements: versions to keep, and the order of torch's builds.

A lock or an existing environment names versions. Each is tried before all others if the request and the
machines still allow it; what has to move moves, and nothing else does.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.errors import UsageError
from envsolve.facts.evidence import Evidence
from envsolve.rules.nvidia.code import TRITON
from envsolve.rules.verdict import Level
from envsolve.values import CudaVersion

if TYPE_CHECKING:
    from envsolve.packages.requirements import Source
    from envsolve.rules.platform import Environment
    from envsolve.solve.family import Option

Preferences = Mapping[str, tuple[Version, ...]]
"""By package, its versions with their local parts, the one to stay with first."""

Item = TypeVar("Item")


def preferences_of(pairs: Iterable[tuple[str, str]]) -> Preferences:
    """The value for packages and their versions; an invalid version is skipped."""
    found: dict[str, tuple[Version, ...]] = {}
    for name, text in pairs:
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        key = canonicalize_name(name)
        found[key] = tuple(dict.fromkeys((*found.get(key, ()), version)))
    return found


def in_front(items: Sequence[Item], kept: Sequence[Version], version_of: Callable[[Item], Version]) -> Sequence[Item]:
    """Items in their order, those of a kept version before the others."""
    if not kept:
        return items
    places = {version: place for place, version in enumerate(kept)}
    return sorted(items, key=lambda item: places.get(version_of(item), len(places)))


def variants_in_front(
    items: Sequence[Item],
    kept: Sequence[Version],
    version_of: Callable[[Item], Version],
    variant_of: Callable[[Item], str],
) -> Sequence[Item]:
    """Likewise for builds: the very one, then the version in its variant, then the version in any.

    The default index names no variant in its versions, which are 2.9.1 there and 2.9.1+cu128 when they are imported.
    """

    def distance(item: Item) -> tuple[int, int]:
        version = version_of(item)
        for place, one in enumerate(kept):
            if one == version:
                return 0, place
            if one.public == version.public:
                return (1 if one.local == variant_of(item) else 2), place
        return 3, 0

    return sorted(items, key=distance) if kept else items


# The order in which the options of the torch family are tried.

DEFAULT = "default"


class NamedVariants(msgspec.Struct, frozen=True):
    """Variants whose indexes a request names for torch; followed if their builds run on the machines.

    Attributes:
        only: Those of indexes that serve torch alone, such as an explicit index of uv.
        beside: Those of indexes that add to another one, of which installers take the newest version.
    """

    only: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()


_NOTHING_NAMED = NamedVariants()


def named_variants(sources: Iterable[Source], environments: Sequence[Environment]) -> NamedVariants:
    """The variants whose indexes a request names for torch in any of the environments."""
    here = [s for s in sources if s.package == "torch" and any(one.wants(s.marker) for one in environments)]
    only = frozenset(source.variant for source in here if source.only)
    return NamedVariants(only, frozenset(source.variant for source in here if not source.only))


#: A version as the catalogue writes it. It has some thousand, which every question compares again: to parse them
#: took a quarter of the time in which a family is judged and put in order.
published_version = lru_cache(maxsize=8192)(Version)


def in_order(options: Sequence[Option], package: str, named: NamedVariants = _NOTHING_NAMED) -> tuple[Option, ...]:
    """Options as the solver should try them: by tier, then newest first, then the preferred variant first.

    A variant that the request names wins within a tier only: one whose Triton does not run is not taken for its name.
    """
    preference = _torch_variant if package == "torch" else _companion_variant
    tier = {"torch": _torch_tier, TRITON: _triton_tier}.get(package, _companion_tier)
    ordered = sorted(options, key=preference)
    ordered.sort(key=lambda option: option.build.variant not in named.beside)
    ordered.sort(key=lambda o: published_version(o.build.version), reverse=True)
    ordered.sort(key=lambda option: option.build.variant not in named.only)
    ordered.sort(key=tier)
    return tuple(ordered)


def _torch_tier(option: Option) -> int:
    """0 where everything works, the paired Triton's kernels included; 1 where torch does; 2 where that is not known."""
    if not option.verdict.level.usable or option.build.evidence is Evidence.INFERRED:
        return 2
    return 0 if option.verdict.triton else 1


def _torch_variant(option: Option) -> tuple[object, ...]:
    """The best verdict first: level of the code, then a CUDA that the driver knows in full.

    Among equals the default index goes first, since its wheels are measured and need no second index; then the newest
    CUDA that the driver knows in full or, in minor-version mode, the one nearest to the driver.
    """
    verdict, build = option.verdict, option.build
    cuda = CudaVersion.parse(build.cuda or "0")
    full = verdict.driver_mode == "full"
    nearest = tuple(-n for n in cuda) if full else cuda
    return (verdict.level.rank, not full, build.index != DEFAULT, nearest)


def _triton_tier(option: Option) -> int:
    """Those whose kernels run before those of which that is not known, and both before those whose kernels do not."""
    return max(option.verdict.level.rank, Level.PTX.rank)


def _companion_tier(option: Option) -> int:
    """Builds that are known to exist before those that are only inferred."""
    return int(any(build.evidence is Evidence.INFERRED for build in option.builds))


def _companion_variant(option: Option) -> tuple[object, ...]:
    """CUDA before CPU, the default index first."""
    return (option.build.variant == "cpu", option.build.index != DEFAULT, option.build.variant)


# ``--exclude-newer``: the instant from which on nothing is published, for files and for catalogued builds alike.


_FORM = r"^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?$"


def parse_exclude_newer(text: str) -> str:
    """The first instant that is too late, ISO 8601 in UTC without zone.

    A date means the whole day, as in uv; an instant may name its zone, otherwise it is UTC.

    Raises:
        UsageError: Neither a date nor an instant.
    """
    try:
        # Python versions differ in the further forms of ISO 8601 that they read.
        if not re.match(_FORM, text):
            raise ValueError(text)
        if len(text) == len("2026-01-31"):
            day = datetime.date.fromisoformat(text) + datetime.timedelta(days=1)
            return f"{day.isoformat()}T00:00:00"
        instant = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        if instant.tzinfo is not None:
            instant = instant.astimezone(datetime.timezone.utc)
    except (ValueError, OverflowError) as error:
        hint = "write it as 2026-01-31 or 2026-01-31T12:00:00Z"
        raise UsageError(f"--exclude-newer {text} is not a date", hint=hint) from error
    return instant.replace(tzinfo=None).isoformat(timespec="seconds")


def too_late(published: str | None, exclude_newer: str | None) -> bool:
    """Whether something was published at or after ``exclude_newer``; an unknown time counts as too late."""
    return exclude_newer is not None and (published is None or published[:19] >= exclude_newer)
