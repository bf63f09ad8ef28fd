"""One file of a catalogue folder: its form, and reading it.

A file is ``{"schema": "envsolve.catalogue/1", "sources": {id: Source}, "records": [...]}``. Files under
``builds/<index>/<package>.json`` also hold ``"requires": {group: [Requires-Dist line, ...]}``; a build's ``requires``
names groups there, so that builds that share their dependencies share one list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Literal, cast

import msgspec
from msgspec.structs import force_setattr

from envsolve.catalogue.kinds import Record
from envsolve.catalogue.model import Build, Source
from envsolve.errors import EnvsolveError, UsageError
from envsolve.files import is_folder, read_regular

_Schema = Literal["envsolve.catalogue/1"]
SCHEMA: _Schema = "envsolve.catalogue/1"


class CatalogueFile(msgspec.Struct, Generic[Record], frozen=True, forbid_unknown_fields=True):
    """One file of ``index_data/``."""

    schema: _Schema
    sources: dict[str, Source]
    records: tuple[Record, ...]
    requires: dict[str, tuple[str, ...]] = {}


class _Head(msgspec.Struct, frozen=True):
    schema: str


def data_folder() -> Path:
    """The ``index_data/`` of this installation: inside the package in a wheel, beside it in a checkout.

    Raises:
        EnvsolveError: The installation carries no catalogue.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "index_data", package.parent / "index_data"):
        if folder.is_dir():
            return folder
    raise EnvsolveError("this installation has no catalogue (index_data/)", hint="reinstall envsolve")


def named_folder(path: Path) -> Path:
    """A folder that somebody named as a catalogue.

    Raises:
        UsageError: It is none.
    """
    if not is_folder(path / "builds"):
        raise UsageError(f"{path} is no catalogue: it has no folder builds", hint="name the index_data/ of a checkout")
    return path


def read_file(path: Path, record: type[Record]) -> CatalogueFile[Record]:
    """One file, decoded and checked, with the groups of ``requires`` as they are written.

    Raises:
        EnvsolveError: It is missing, or not a catalogue file of such records.
    """
    try:
        return _decoded(read_regular(path), record)
    except (OSError, msgspec.MsgspecError) as error:
        raise EnvsolveError(
            f"the catalogue file {path.name} cannot be read: {_said(error)}",
            hint=f"bring {path} back as it was, or reinstall envsolve",
        ) from error


def read_own_file(path: Path, record: type[Record]) -> CatalogueFile[Record] | None:
    """A file of the user's own folder; None where there is none, or one that an envsolve of another form wrote.

    Raises:
        EnvsolveError: It is damaged; the hint names the file to delete.
    """
    hint = _to_delete(path)
    try:
        data = read_regular(path)
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema == SCHEMA:
            return _decoded(data, record)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise EnvsolveError(f"your own catalogue file {path.name} cannot be read: {_said(error)}", hint=hint) from error
    warn("%s is not used: it is of the form %s, and this envsolve reads %s; delete it", path, schema, SCHEMA)
    return None


def warn(message: str, *arguments: object) -> None:
    """Say what is wrong with a folder, and was passed over; logging is imported when there is such a thing."""
    import logging

    logging.getLogger("envsolve.catalogue").warning(message, *arguments)


def _to_delete(path: Path) -> str:
    return f"delete {path}, then measure again what it held: envsolve index update"


def _decoded(data: bytes, record: type[Record]) -> CatalogueFile[Record]:
    file: CatalogueFile[Record] = _decoder(cast(Any, record)).decode(data)
    return file


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


@cache
def _decoder(record: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(CatalogueFile[record])


def check_forms(records: tuple[Any, ...], path: Path) -> None:
    """Hold the records of the user's own file to the forms of their values, and builds to the place of the file.

    Raises:
        EnvsolveError: One has another form: the file is damaged, and the hint is to delete it.
    """
    from envsolve.catalogue.forms import misplaced, misshapen

    place, package = path.parent.name, path.stem
    found = (said for record in records for said in (*misshapen(record), *misplaced(record, place, package)))
    if wrong := next(found, None):
        raise EnvsolveError(f"your own catalogue file {path.name} is damaged: {wrong}", hint=_to_delete(path))


def sources_of(record: Any) -> Iterator[str]:
    """Every source that a record names."""
    yield record.source
    yield from (noted.source for noted in getattr(record, "cited", {}).values())
    yield from (noted.source for noted in getattr(record, "disputed", ()))
    yield from (source for fact in getattr(record, "files", {}).values() for source in fact.sources)


def settle(record: Any, keys: Mapping[str, str], requires: Mapping[str, tuple[str, ...]]) -> None:
    """Give a record the sources' keys of the whole catalogue, and a build the lines of its groups, in place.

    Nobody has seen the record yet, and making a thousand anew takes longer than decoding them.

    Raises:
        KeyError: It names a source or a group that its file lacks.
    """
    put = force_setattr
    put(record, "source", keys[record.source])
    for noted in (*getattr(record, "cited", {}).values(), *getattr(record, "disputed", ())):
        put(noted, "source", keys[noted.source])
    if isinstance(record, Build):
        if record.requires:
            lists = [requires[group] for group in record.requires]
            put(record, "requires", lists[0] if len(lists) == 1 else tuple(chain.from_iterable(lists)))
        for fact in record.files.values():
            if fact.sources:
                force_setattr(fact, "sources", tuple([keys[source] for source in fact.sources]))
