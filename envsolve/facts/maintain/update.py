"""Update the measured facts: keep what is recorded, and measure what is new.

The records of a release replace those of the same version and platform. They are written into a whole catalogue (the
``index_data/`` of a checkout), or into a directory that is laid over one and holds only what differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.version import Version

from envsolve.errors import EnvsolveError, IndexUnavailableError
from envsolve.facts import files
from envsolve.facts.builds import Build, KnownMetadata
from envsolve.facts.catalogue import Catalogue, in_force
from envsolve.facts.evidence import Source
from envsolve.facts.files import SCHEMA, CatalogueFile, Kind, named_folder, read_file, read_own_file, sources_of
from envsolve.facts.maintain.lookup import word_of
from envsolve.facts.maintain.refresh import Index
from envsolve.facts.maintain.steps import Step, steps
from envsolve.system.files import replace_file

# Writing ``index_data/`` files, the inverse of :mod:`envsolve.facts.files`, so that their diffs can be reviewed.
#
# One record per line, fields in the order of their type, defaults left out. The same input always gives the same
# text.


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
    """The fields of a type with their defaults; for required fields a value that equals nothing."""
    fields = msgspec.structs.fields(record)
    return {f.name: f.default if f.default_factory is msgspec.NODEFAULT else f.default_factory() for f in fields}


def update(index: Index, folder: Path, date: str) -> dict[Path, tuple[str, ...]]:
    """Measure releases that the index has and the catalogue lacks, and write the changed files.

    Args:
        index: The default package index.
        directory: ``index_data/`` of a checkout.
        date: Today, ISO: the date of the sources of the files written.

    Returns:
        Files written, with what was added to each (``torch 2.15.0 manylinux_2_28_x86_64``).

    Raises:
        UsageError: The directory is not a catalogue, a wheel cannot be read, or a release works in a way that measuring
            does not know.
        IndexUnavailableError: The index fails, or has no torch.
        EnvsolveError: A file cannot be written; it is as it was.
    """
    catalogue = Catalogue(named_folder(folder))
    _check_index(index)
    written = {}
    for step in steps(catalogue):
        if new := _new(index, catalogue, step):
            path = folder / f"{step.file}.json"
            file = read_file(path, step.kind.record)
            _write(path, step, file, file.sources, new, date)
            written[path] = _names(step.kind, new)
    return written


def update_overlay(index: Index, folder: Path, base: Path, date: str) -> dict[Path, tuple[str, ...]]:
    """Measure releases that neither a catalogue nor its overlay has, and write them into the overlay.

    Records that the catalogue has in a newer form by now are dropped from the files that are written. METADATA by hash
    is left to checkouts.

    Args:
        index: The default package index.
        directory: The user's own; made where it is missing.
        base: The catalogue.
        date: Today, ISO.

    Returns:
        As :func:`update`.

    Raises:
        EnvsolveError: As :func:`update`; or a file of the directory is damaged.
    """
    catalogue = Catalogue(base, folder)
    _check_index(index)
    written = {}
    # What METADATA a user's plans read, their cache keeps by itself.
    for step in (step for step in steps(catalogue) if step.kind is not files.KNOWN_METADATA):
        if new := _new(index, catalogue, step):
            path = folder / f"{step.file}.json"
            bundled = read_file(base / f"{step.file}.json", step.kind.record)
            own = read_own_file(path, step.kind.record) or CatalogueFile(SCHEMA, {}, (), {})
            _make_folder(path.parent)
            _write(path, step, _still_needed(step, bundled, own), bundled.sources, new, date)
            written[path] = _names(step.kind, new)
    return written


def merged(known: Iterable[Build], new: Sequence[Build]) -> list[Build]:
    """Both, in order; the new ones replace all of the same version and platform."""
    replaced = {(build.version, build.platform) for build in new}
    kept = [build for build in known if (build.version, build.platform) not in replaced]
    return sorted([*kept, *new], key=build_order)


def _check_index(index: Index) -> None:
    """Raise if the index has no torch: it is the wrong URL, and finding nothing new there means nothing."""
    if not index.project("torch"):
        hint = "check the URL of the index, and that it carries all packages"
        raise IndexUnavailableError("the package index has no torch, so new releases cannot be found", hint=hint)


def _new(index: Index, catalogue: Catalogue, step: Step) -> list[Any]:
    known = catalogue.file(step.file)
    return [_in_its_file(record) for record in step.measure(index, step.lacking(known)) if record not in known]


def _in_its_file(record: Any) -> Any:
    """A record with the source keys of its own file, after it took over citations from one of the whole catalogue."""
    cited = {f: replace(c, source=_own_key(c.source)) for f, c in record.cited.items()}
    disputed = tuple(replace(dispute, source=_own_key(dispute.source)) for dispute in record.disputed)
    return replace(record, cited=cited, disputed=disputed)


def _own_key(source: str) -> str:
    return source.rsplit(":", 1)[-1]


def _still_needed(step: Step, bundled: CatalogueFile[Any], own: CatalogueFile[Any]) -> CatalogueFile[Any]:
    dates = {id(record): file.sources[record.source].date for file in (bundled, own) for record in file.records}
    holding = in_force(step.kind, bundled.records, own.records, lambda record: dates[id(record)])
    used = {record.source for record in holding}
    sources = {key: source for key, source in own.sources.items() if key in used}
    return CatalogueFile(SCHEMA, sources, tuple(holding), own.requires)


def _write(
    path: Path, step: Step, file: CatalogueFile[Any], sources: dict[str, Source], new: list[Any], date: str
) -> None:
    """Replace one file by itself with new records.

    Args:
        sources: Where the source of the new records is described, whatever its date there.
    """
    cited = {key: sources[key] for record in new for key in sources_of(record)}
    dated = {**file.sources, step.source: replace(sources[step.source], date=date)}
    dated |= {key: source for key, source in cited.items() if key not in dated}
    if step.kind is files.BUILDS:
        known = [
            replace(build, requires=tuple(line for group in build.requires or () for line in file.requires[group]))
            for build in file.records
        ]
        records, requires = group_requires(merged(known, new))
        text = dump_catalogue_file(dated, records, requires)
    else:
        replaced = {step.kind.identity(record) for record in new}
        kept = [record for record in file.records if step.kind.identity(record) not in replaced]
        text = dump_catalogue_file(dated, sorted([*kept, *new], key=_by_version))
    try:
        replace_file(path, text)
    except OSError as error:
        raise _unwritable(path, error) from error


def _by_version(record: Any) -> tuple[str, Version]:
    return getattr(record, "package", ""), Version(record.version)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(path: Path, error: OSError) -> EnvsolveError:
    return EnvsolveError(
        f"cannot write {path}: {error.strerror or error}",
        hint="make room, or name another directory with ENVSOLVE_CATALOGUE",
    )


def _names(kind: Kind[Any], new: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name_of(kind, record) for record in new))


def name_of(kind: Kind[Any], record: Any) -> str:
    """In words: ``torch 2.15.0 manylinux_2_28_x86_64``, ``triton 3.9.0``, ``torch-extension 2.15.0``."""
    if isinstance(record, Build):
        return f"{record.package} {record.version} {record.platform}"
    if isinstance(record, KnownMetadata):
        return f"METADATA of {record.package} {record.version}"
    return f"{word_of(kind)} {record.version}"
