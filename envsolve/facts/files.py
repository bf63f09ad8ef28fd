"""One file of a catalogue folder: its form, and reading it.

A file is ``{"schema": "envsolve.catalogue/1", "sources": {id: Source}, "records": [...]}``. Files under
``builds/<index>/<package>.json`` also hold ``"requires": {group: [Requires-Dist line, ...]}``; a build's ``requires``
names groups there, so that builds that share their dependencies share one list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec
from msgspec.structs import force_setattr

from envsolve.errors import EnvsolveError, UsageError
from envsolve.facts.builds import (
    Build,
    CondaBuild,
    CondaChannel,
    CondaName,
    CxxStandard,
    ExtensionModule,
    FamilyMember,
    IndexPlace,
    KnownMetadata,
    PythonRelease,
    SharedFiles,
    SourceProject,
    TorchExtension,
)
from envsolve.facts.evidence import Precision, Source
from envsolve.facts.hardware import (
    Architecture,
    CompilerPackages,
    Distribution,
    DriverBranch,
    Floor,
    GpuModel,
    Image,
    ImageRequirement,
    Toolkit,
    TritonRelease,
)
from envsolve.system.files import is_folder, read_regular, user_folder

# The kinds of facts: for each the file that holds it, its record, and what tells one record from another.


Record = TypeVar("Record")


class Kind(msgspec.Struct, Generic[Record], frozen=True):
    """One kind of fact.

    Attributes:
        name: Stem of its file; ``builds`` for the folder that has a file for each index and package.
        record: The struct.
        key: Fields that tell its records apart.
    """

    name: str
    record: type[Record]
    key: tuple[str, ...]

    def identity(self, record: Record) -> tuple[object, ...]:
        """What two records of the same thing have in common."""
        return tuple(getattr(record, field) for field in self.key)


#: Every kind by its name, in the order in which they are listed to people.
KINDS: dict[str, Kind[Any]] = {}


def _kind(name: str, record: type[Record], *key: str) -> Kind[Record]:
    KINDS[name] = kind = Kind(name, record, key)
    return kind


# Builds of one version, variant and platform may need a record for each of their Pythons: such records stand together.
BUILDS = _kind("builds", Build, "package", "index", "version", "local", "variant", "platform")
TRITONS = _kind("tritons", TritonRelease, "version")
TOOLKITS = _kind("toolkits", Toolkit, "version")
COMPILERS = _kind("compilers", CompilerPackages, "manager", "first", "packages")
TORCH_EXTENSIONS = _kind("torch_extensions", TorchExtension, "version")
CXX_STANDARDS = _kind("cxx_standards", CxxStandard, "standard")
EXTENSION_MODULES = _kind("extension_modules", ExtensionModule, "name")
DRIVERS = _kind("drivers", DriverBranch, "branch")
FLOORS = _kind("floors", Floor, "first")
GPUS = _kind("gpus", GpuModel, "name")
ARCHITECTURES = _kind("architectures", Architecture, "compute_capability")
CONDA = _kind("conda", CondaBuild, "package", "version", "channel", "subdir", "build", "number", "pythons")
CONDA_CHANNELS = _kind("conda_channels", CondaChannel, "name")
CONDA_NAMES = _kind("conda_names", CondaName, "package")
IMAGES = _kind("images", Image, "repository", "version", "distribution")
IMAGE_REQUIREMENTS = _kind("image_requirements", ImageRequirement, "version")
DISTRIBUTIONS = _kind("distributions", Distribution, "name")
SOURCE_PROJECTS = _kind("source_projects", SourceProject, "package", "versions")
FAMILY = _kind("family", FamilyMember, "package")
INDEXES = _kind("indexes", IndexPlace, "name")
PYTHONS = _kind("pythons", PythonRelease, "version")
SHARED_FILES = _kind("shared_files", SharedFiles, "package", "versions")
# Wheels of one release may differ in what they say: such records stand together.
KNOWN_METADATA = _kind("known_metadata", KnownMetadata, "package", "version", "sha256")
PRECISIONS = _kind("precisions", Precision, "grounds")


def kind_of(file: str) -> Kind[Any]:
    """The kind of a catalogue file, by its path inside the folder: ``builds/default/torch.json``, ``gpus.json``.

    Raises:
        KeyError: No kind has such a file.
    """
    return KINDS[file.split("/")[0].removesuffix(".json")]


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

    logging.getLogger("envsolve.facts").warning(message, *arguments)


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
    from envsolve.facts.forms import misplaced, misshapen

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


# The user's own catalogue folder: facts that ``envsolve index update`` measured since this envsolve was released.
#
# It has the layout of ``index_data/`` and holds only what differs. Of two records of one thing, the one whose source
# was
# read later holds, and the bundled one where both were read on the same day: facts that a newer envsolve brings are
# not
# hidden by what an older one measured.


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
