"""Versions to stay with: preferences of the solve, never constraints.

A lock or an existing environment names them. Each is tried before all others if the request and the
machines still allow it; what has to move moves, and nothing else does.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.errors import UsageError

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
        raise UsageError(f"--exclude-newer {text}: not a date", hint=hint) from error
    return instant.replace(tzinfo=None).isoformat(timespec="seconds")


def too_late(published: str | None, exclude_newer: str | None) -> bool:
    """Whether something was published at or after the exclude_newer; at an unknown time counts as too late."""
    return exclude_newer is not None and (published is None or published[:19] >= exclude_newer)
