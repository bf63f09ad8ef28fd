"""Bringing the measured facts up to date: what is recorded stays, what is new is measured.

The records of a release replace those of the same version and platform. They are written into a whole catalogue (the
``index_data/`` of a checkout), or into a folder that is laid over one and holds only what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from packaging.version import Version

from envsolve.catalogue import kinds
from envsolve.catalogue.facts import word_of
from envsolve.catalogue.file import SCHEMA, CatalogueFile, named_folder, read_file, read_own_file, sources_of
from envsolve.catalogue.kinds import Kind
from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Build, KnownMetadata, Source
from envsolve.catalogue.overlay import in_force
from envsolve.catalogue.refresh import Index
from envsolve.catalogue.steps import Step, steps
from envsolve.catalogue.write import build_order, dump_catalogue_file, group_requires
from envsolve.errors import EnvsolveError, IndexUnavailableError
from envsolve.files import replace_file


def update(index: Index, folder: Path, date: str) -> dict[Path, tuple[str, ...]]:
    """Measure what the index has and a catalogue has not, and write the files that change.

    Args:
        index: The default package index.
        folder: ``index_data/`` of a checkout.
        date: Today, ISO: the date of the sources of the files written.

    Returns:
        Files written, with what was added to each (``torch 2.15.0 manylinux_2_28_x86_64``).

    Raises:
        UsageError: The folder is no catalogue, a wheel cannot be read, or a release works in a way that measuring does
            not know.
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
    """The same for a folder that is laid over a catalogue: what neither holds is measured, and written into the first.

    Records that the catalogue has in a newer form by now are dropped from the files that are written. METADATA by hash
    is left to checkouts.

    Args:
        index: The default package index.
        folder: The user's own; made where it is missing.
        base: The catalogue.
        date: Today, ISO.

    Returns:
        As :func:`update`.

    Raises:
        EnvsolveError: As :func:`update`; or a file of the folder is damaged.
    """
    catalogue = Catalogue(base, folder)
    _check_index(index)
    written = {}
    # What METADATA a user's plans read, their cache keeps by itself.
    for step in (step for step in steps(catalogue) if step.kind is not kinds.KNOWN_METADATA):
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
    """An index that has no torch is the wrong address: that nothing new is there says nothing."""
    if not index.project("torch"):
        hint = "check the address of the index, and that it carries all packages"
        raise IndexUnavailableError("the package index has no torch, so it does not tell what is new", hint=hint)


def _new(index: Index, catalogue: Catalogue, step: Step) -> list[Any]:
    known = catalogue.file(step.file)
    return [_in_its_file(record) for record in step.measure(index, step.lacking(known)) if record not in known]


def _in_its_file(record: Any) -> Any:
    """A record with the sources' keys of its own file, where it took over citations from one of the whole catalogue."""
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
    if step.kind is kinds.BUILDS:
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
        hint="make room, or name another folder with ENVSOLVE_CATALOGUE",
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
