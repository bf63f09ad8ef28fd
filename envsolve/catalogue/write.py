"""Writing ``index_data/`` files, the inverse of :mod:`envsolve.catalogue.file`, so that their diffs can be reviewed.

One record per line, fields in the order of their type, defaults left out. The same input always gives the same text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.version import Version

from envsolve.catalogue.file import SCHEMA
from envsolve.catalogue.model import Build, Source


def dump_catalogue_file(
    sources: Mapping[str, Source],
    records: Iterable[msgspec.Struct],
    requires: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The text of one catalogue file.

    Args:
        sources: By the ids that the records' ``source`` fields name.
        records: Records of the catalogue, already in the order wanted (:func:`build_order` for builds).
        requires: Requires-Dist lines by group name, for files of builds (:func:`group_requires`).

    Returns:
        JSON text that ends in a newline.
    """
    parts = [f'"schema": {_json(SCHEMA)}', _block("sources", _entries(sources), "{}")]
    if requires:
        groups = [f"{_json(name)}: {_json(list(lines))}" for name, lines in requires.items()]
        parts.append(_block("requires", groups, "{}"))
    parts.append(_block("records", [_json(_plain(record)) for record in records], "[]"))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def build_order(build: Build) -> tuple[Any, ...]:
    """Sort key for builds: version, platform, variant, so that a new release is appended."""
    return (Version(build.version), build.platform, build.variant, build.local)


def group_requires(builds: Iterable[Build]) -> tuple[list[Build], dict[str, tuple[str, ...]]]:
    """Move each build's Requires-Dist lines into named groups, one for all builds that have the same lines.

    Args:
        builds: With full lines in ``requires``, as :meth:`Catalogue.builds` returns them.

    Returns:
        The builds, in order, with group names in ``requires``; and the lines by group name (``2.9.1``, ``2.9.1/2``).
    """
    names: dict[tuple[str, ...], str] = {}
    grouped: list[Build] = []
    for build in builds:
        if not build.requires:
            grouped.append(build)
            continue
        if build.requires not in names:
            count = sum(name.partition("/")[0] == build.version for name in names.values())
            names[build.requires] = f"{build.version}/{count + 1}" if count else build.version
        grouped.append(replace(build, requires=(names[build.requires],)))
    return grouped, {name: lines for lines, name in names.items()}


def _block(key: str, lines: Sequence[str], brackets: str) -> str:
    if not lines:
        return f"{_json(key)}: {brackets}"
    return f"{_json(key)}: {brackets[0]}\n  " + ",\n  ".join(lines) + f"\n{brackets[1]}"


def _entries(mapping: Mapping[str, msgspec.Struct]) -> list[str]:
    return [f"{_json(key)}: {_json(_plain(value))}" for key, value in mapping.items()]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: object) -> Any:
    """A record as JSON values; a field that equals its default is left out, as decoding fills it in again."""
    if isinstance(value, msgspec.Struct):
        known = ((name, getattr(value, name), default) for name, default in _defaults(type(value)).items())
        return {name: _plain(part) for name, part, default in known if part != default}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


@cache
def _defaults(record: type[msgspec.Struct]) -> Mapping[str, object]:
    """The fields of a type, with what nothing equals for those that must be given."""
    fields = msgspec.structs.fields(record)
    return {f.name: f.default if f.default_factory is msgspec.NODEFAULT else f.default_factory() for f in fields}
