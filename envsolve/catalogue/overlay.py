"""The user's own catalogue folder: facts that ``envsolve index update`` measured since this envsolve was released.

It has the layout of ``index_data/`` and holds only what differs. Of two records of one thing, the one whose source was
read later holds, and the bundled one where both were read on the same day: facts that a newer envsolve brings are not
hidden by what an older one measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from envsolve.catalogue.kinds import Kind, Record
from envsolve.files import user_folder


def overlay_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """``ENVSOLVE_CATALOGUE``, else ``catalogue`` in the user's data folder of this platform; it need not exist."""
    if environ.get("ENVSOLVE_CATALOGUE"):
        return Path(environ["ENVSOLVE_CATALOGUE"])
    return user_folder("data", environ) / "catalogue"


def in_force(
    kind: Kind[Record], bundled: Sequence[Record], own: Sequence[Record], date: Callable[[Record], str]
) -> list[Record]:
    """The records of the user's own folder that hold against the bundled ones.

    Args:
        kind: Theirs.
        bundled: What this envsolve carries.
        own: What the user's folder holds.
        date: ISO date on which the source of a record was read.
    """
    newest: dict[tuple[object, ...], str] = {}
    for record in bundled:
        key = kind.identity(record)
        newest[key] = max(newest.get(key, ""), date(record))
    return [record for record in own if date(record) > newest.get(kind.identity(record), "")]


def laid_over(kind: Kind[Record], bundled: Sequence[Record], holding: Sequence[Record]) -> tuple[Record, ...]:
    """Bundled records, those of the user that hold (:func:`in_force`) in the place of what they replace, or behind."""
    by_key: dict[tuple[object, ...], list[Record]] = {}
    for record in holding:
        by_key.setdefault(kind.identity(record), []).append(record)
    replaced: set[tuple[object, ...]] = set()
    result: list[Record] = []
    for record in bundled:
        key = kind.identity(record)
        if key not in by_key:
            result.append(record)
        elif key not in replaced:
            replaced.add(key)
            result += by_key[key]
    return (*result, *(record for key, records in by_key.items() if key not in replaced for record in records))
