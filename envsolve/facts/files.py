"""One file of a catalogue directory: its form, and reading it.

A file is ``{"schema": "envsolve.catalogue/1", "sources": {id: Source}, "records": [...]}``. Files under
``builds/<index>/<package>.json`` also hold ``"requires": {group: [Requires-Dist line, ...]}``; a build's ``requires``
names groups there, so that builds that share their dependencies share one list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec
from msgspec.structs import force_setattr
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from envsolve.errors import EnvsolveError, UsageError
from envsolve.facts.builds import (
    Build,
    CondaBuild,
    CondaChannel,
    CondaName,
    CxxStandard,
    Dependents,
    ExtensionModule,
    FamilyMember,
    IndexPlace,
    KnownMetadata,
    PythonRelease,
    SourceProject,
    TorchExtension,
)
from envsolve.facts.evidence import (
    CompiledAgainst,
    FastPath,
    FirstUse,
    GpuPart,
    GpuSupport,
    PackageNames,
    Placeholder,
    Precision,
    SharedFiles,
    Source,
    WheelName,
    WheelStub,
)
from envsolve.facts.hardware import (
    Architecture,
    ArchName,
    CompilerPackages,
    Distribution,
    DriverBranch,
    Floor,
    GpuModel,
    HeaderClash,
    Image,
    ImageRequirement,
    JobLabel,
    MachineName,
    Peak,
    Toolkit,
    TritonRelease,
    VendorRoute,
)
from envsolve.system.files import is_folder, read_regular

# The kinds of facts: for each the file that holds it, its record, and what tells one record from another.

Record = TypeVar("Record")


class Kind(msgspec.Struct, Generic[Record], frozen=True):
    """One kind of fact.

    Attributes:
        name: Stem of its file; ``builds`` for the directory that has a file for each index and package.
        record: The struct.
        key: Fields that identify a record.
    """

    name: str
    record: type[Record]
    key: tuple[str, ...]

    def identity(self, record: Record) -> tuple[object, ...]:
        """The identity of a record: two records of the same thing have the same key."""
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
ARCH_NAMES = _kind("arch_names", ArchName, "name")
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
FAST_PATHS = _kind("fast_paths", FastPath, "package", "version", "variant", "path")
FIRST_USES = _kind("first_uses", FirstUse, "package", "what")
GPU_SUPPORT = _kind("gpu_support", GpuSupport, "packages", "versions")
GPU_PARTS = _kind("gpu_parts", GpuPart, "package", "versions", "lacks", "system")
COMPILED_AGAINST = _kind("compiled_against", CompiledAgainst, "package", "versions", "module")
# Wheels of one release may differ in what they say: such records stand together.
KNOWN_METADATA = _kind("known_metadata", KnownMetadata, "package", "version", "sha256")
DEPENDENTS = _kind("dependents", Dependents, "brings")
MACHINE_NAMES = _kind("machine_names", MachineName, "name")
PLACEHOLDERS = _kind("placeholders", Placeholder, "summary")
PACKAGE_NAMES = _kind("package_names", PackageNames, "names")
WHEEL_NAMES = _kind("wheel_names", WheelName, "name")
WHEEL_STUBS = _kind("wheel_stubs", WheelStub, "backend")
HEADER_CLASHES = _kind("header_clashes", HeaderClash, "functions")
VENDOR_ROUTES = _kind("vendor_routes", VendorRoute, "vendor", "system")
JOB_LABELS = _kind("job_labels", JobLabel, "engine", "fact")
PEAKS = _kind("peaks", Peak, "names")
PRECISIONS = _kind("precisions", Precision, "grounds")


def kind_of(file: str) -> Kind[Any]:
    """The kind of a catalogue file, by its path inside the directory: ``builds/default/torch.json``, ``gpus.json``.

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
    """A directory that the user named as a catalogue.

    Raises:
        UsageError: The directory is not a catalogue.
    """
    if not is_folder(path / "builds"):
        hint = "give the index_data/ of a checkout"
        raise UsageError(f"{path} is not a catalogue: it has no directory builds", hint=hint)
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
            hint=f"restore {path}, or reinstall envsolve",
        ) from error


def read_own_file(path: Path, record: type[Record]) -> CatalogueFile[Record] | None:
    """A file of the user's own directory; None if it is missing or an envsolve with another format wrote it.

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
    warn("%s is not used: its format is %s, and this envsolve reads %s; delete it", path, schema, SCHEMA)
    return None


def warn(message: str, *arguments: object) -> None:
    """Log what is wrong with a directory and was skipped; logging is imported only then."""
    import logging

    logging.getLogger("envsolve.facts").warning(message, *arguments)


def _to_delete(path: Path) -> str:
    return f"delete {path}, then measure its facts again: envsolve index update"


def _decoded(data: bytes, record: type[Record]) -> CatalogueFile[Record]:
    file: CatalogueFile[Record] = _decoder(cast(Any, record)).decode(data)
    return file


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


@cache
def _decoder(record: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(CatalogueFile[record])


def check_forms(records: tuple[Any, ...], path: Path) -> None:
    """Check the values in the user's own file, and that its builds belong to the place of the file.

    Raises:
        EnvsolveError: One has another form: the file is damaged, and the hint is to delete it.
    """
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


# The form that a fact's text must have, by the name of its field: versions, dates, hashes, names of architectures.
#
# Decoding checks types only. The tests check the bundled files against these forms; the user's own files are checked
# when they are read, since another program may have written them.


def _matches(pattern: str) -> Callable[[str], object]:
    return partial(re.fullmatch, pattern)  # compiled at first use: few users have a directory of their own


def _iso_date(text: str) -> bool:
    """A date, or a month where the day is not known."""
    date.fromisoformat(text if len(text) > len("2026-01") else f"{text}-01")
    return True


_RELEASE = _matches(r"\d+(\.\d+)+")
_DRIVER = _matches(r"\d{3}(\.\d+)*")
_CC = _matches(r"\d{1,2}\.\d")
_ARCH = _matches(r"(sm|compute)_\d{2,3}[af]?")

FORMS: Mapping[str, Callable[[str], object]] = {
    "archs": _matches(r"(sm|compute)_\d{2,3}[af]?|\d{1,2}\.\d[af]?"),
    "code": _ARCH,
    "compute_capability": _CC,
    "cuda": _matches(r"\d+\.\d+|"),
    "cudnn": _RELEASE,
    "date": _iso_date,
    "driver_linux": _DRIVER,
    "driver_windows": _DRIVER,
    "end_of_life": _iso_date,
    "first_driver": _DRIVER,
    "libc": _matches(r"(glibc|musl) \d+\.\d+"),
    "listed_in": _DRIVER,
    "max_cc": _CC,
    "min_cc": _CC,
    "nccl": _RELEASE,
    "no_matrix_product": _CC,
    "own_ptxas": _RELEASE,
    "pci_ids": _matches(r"[0-9a-f]{4}"),
    "ptx_isa": _matches(r"\d+\.\d+"),
    "ptxas_first": _matches(r"\d+\.\d+"),
    "ptxas_last": _matches(r"\d+\.\d+"),
    "pythons": _matches(r"(cp|py|pp)\d[\w.]*(-\w+)?|\d\.\d+t?"),
    "released": _iso_date,
    "requires": cache(Requirement),  # releases share most of their lines
    "requires_python": SpecifierSet,
    "sha256": _matches(r"[0-9a-f]{64}"),
    "targets": _CC,
    "torch": SpecifierSet,
    "torch_cuda": SpecifierSet,
    "variant": _matches(r"cpu|any|cu\d{2,3}"),
}
#: Fields whose form is another than that of their name, or that only one record has.
_OWN: Mapping[tuple[type, str], Callable[[str], object]] = {
    (SourceProject, "build_requires"): Requirement,
    (SourceProject, "cuda"): SpecifierSet,
    (SourceProject, "versions"): SpecifierSet,
    (SharedFiles, "versions"): SpecifierSet,
    (GpuPart, "versions"): SpecifierSet,
    (CompiledAgainst, "versions"): SpecifierSet,
    (CompiledAgainst, "module_versions"): SpecifierSet,
}
_VERSIONED = (Build, KnownMetadata, Toolkit, TritonRelease)


def misshapen(value: Any) -> Iterator[str]:
    """The fields of a record, nested ones included, whose text has a wrong form: ``cuda: 'twelve'``.

    Args:
        value: A record of the catalogue, its requirement lines in place of the groups.
    """
    if isinstance(value, _VERSIONED) and not _holds(Version, value.version):
        yield f"version: {value.version!r}"
    for name in value.__struct_fields__:
        form = _OWN.get((type(value), name)) or FORMS.get(name)
        found = getattr(value, name)
        parts = found if isinstance(found, tuple) else found.values() if isinstance(found, Mapping) else (found,)
        for part in parts:
            if isinstance(part, msgspec.Struct):
                yield from misshapen(part)
            elif isinstance(part, str) and form is not None and not _holds(form, part):
                yield f"{name}: {part!r}"


def misplaced(record: Any, place: str, package: str) -> Iterator[str]:
    """Fields of a build except those that its file's path gives, ``builds/<place>/<package>.json``."""
    if isinstance(record, Build):
        if record.index != place:
            yield f"index: {record.index!r}"
        if record.package != package:
            yield f"package: {record.package!r}"


def _holds(form: Callable[[str], object], text: str) -> bool:
    try:
        return form(text) is not None
    except (InvalidRequirement, InvalidSpecifier, InvalidVersion, ValueError):
        return False
