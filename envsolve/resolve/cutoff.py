"""``--exclude-newer``: the instant from which on nothing is published, for files and for catalogued builds alike."""

from __future__ import annotations

import datetime
import re

from envsolve.errors import UsageError

_FORM = r"^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?$"


def cutoff_of(text: str) -> str:
    """The first instant that is too late, ISO 8601 in UTC without zone.

    A date stands for the whole day, as uv has it; an instant may name its zone, else it is UTC.

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


def too_late(published: str | None, cutoff: str | None) -> bool:
    """Whether something was published at or after the cutoff; at an unknown time counts as too late."""
    return cutoff is not None and (published is None or published[:19] >= cutoff)
