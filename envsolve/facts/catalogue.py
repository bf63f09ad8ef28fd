"""The facts of ``index_data/`` as typed records, each file read only when something asks for it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from envsolve.errors import EnvsolveError
from envsolve.facts import files as kinds
from envsolve.facts.builds import Build, KnownMetadata
from envsolve.facts.evidence import Source
from envsolve.facts.files import CatalogueFile, Kind, Record, check_forms, data_folder, read_own_file
from envsolve.system.files import is_file, user_folder
from envsolve.values import PythonVersion

_TAG = re.compile(r"cp3(\d+)t?")

Key = TypeVar("Key", str, int)


def _table(kind: Kind[Record]) -> cached_property[tuple[Record, ...]]:
    """An attribute of the catalogue: the records of a kind, read on first use."""
    return cached_property(lambda catalogue: catalogue.records(kind))


def _optional(kind: Kind[Record]) -> cached_property[tuple[Record, ...]]:
    """Like :class:`Records`, but empty if the catalogue has no file of that kind: these facts are optional."""
    return cached_property(lambda catalogue: catalogue.records(kind) if catalogue.has(kind) else ())


def _keyed(kind: Kind[Record], key: Callable[[Record], Key]) -> cached_property[Mapping[Key, Record]]:
    """An attribute of the catalogue: the records of one kind by their key, read on first use."""
    return cached_property(lambda catalogue: {key(record): record for record in catalogue.records(kind)})


_LATE = f"{kinds.KNOWN_METADATA.name}.json"


class _Keys(msgspec.Struct, gc=False):
    package: str
    sha256: tuple[str, ...]


_keys_of = msgspec.json.Decoder(_Keys).decode


class LateMetadata:
    """A record of metadata, of which only what identifies it has been read."""

    __slots__ = ("_written", "package", "sha256")

    def __init__(self, written: msgspec.Raw) -> None:
        keys = _keys_of(written)
        self.package, self.sha256, self._written = keys.package, keys.sha256, written

    def read(self) -> KnownMetadata:
        """The whole record; its source has the key that it has in its file."""
        return msgspec.json.decode(self._written, type=KnownMetadata)


class Catalogue:
    """The facts, loaded on demand and kept for the life of the object.

    Args:
        directory: Read this directory instead of the installed one, and ignore the user's own directory.
        overlay: The user's own directory, which may be missing.
    """

    #: Triton releases and their assemblers.
    tritons = _table(kinds.TRITONS)
    #: CUDA toolkit releases.
    toolkits = _table(kinds.TOOLKITS)
    #: Driver floors of the CUDA families.
    floors = _table(kinds.FLOORS)
    #: Driver branches, oldest first.
    drivers = _table(kinds.DRIVERS)
    #: GPU models.
    gpus = _table(kinds.GPUS)
    #: Architectures by compute capability (``"8.9"``).
    architectures = _keyed(kinds.ARCHITECTURES, lambda one: one.compute_capability)
    #: Packages that make up a CUDA compiler.
    compilers = _table(kinds.COMPILERS)
    #: What compiling against torch takes, by torch's public version.
    torch_extensions = _keyed(kinds.TORCH_EXTENSIONS, lambda one: one.version)
    #: Names of architectures in ``TORCH_CUDA_ARCH_LIST``, in the order in which torch replaces them.
    arch_names = _optional(kinds.ARCH_NAMES)
    #: C++ standards and the compilers that have them.
    cxx_standards = _keyed(kinds.CXX_STANDARDS, lambda one: one.standard)
    #: Compiled modules and the packages that they are of.
    extension_modules = _table(kinds.EXTENSION_MODULES)
    #: Packages that install the files of others.
    shared_files = _table(kinds.SHARED_FILES)
    compiled_against = _table(kinds.COMPILED_AGAINST)
    first_uses = _optional(kinds.FIRST_USES)
    gpu_parts = _optional(kinds.GPU_PARTS)
    dependents = _optional(kinds.DEPENDENTS)
    #: Packages that are compiled against the torch and CUDA at hand.
    source_projects = _table(kinds.SOURCE_PROJECTS)
    images = _table(kinds.IMAGES)
    #: What ``nvidia/cuda`` images ask of the driver, by toolkit release.
    image_requirements = _keyed(kinds.IMAGE_REQUIREMENTS, lambda one: one.version)
    #: Linux distributions by name, as image tags write it.
    distributions = _keyed(kinds.DISTRIBUTIONS, lambda one: one.name)
    #: Builds on conda channels.
    conda = _table(kinds.CONDA)
    #: Conda channels of which there is more to know than their names.
    conda_channels = _table(kinds.CONDA_CHANNELS)
    #: Torch-family packages by name.
    family = _keyed(kinds.FAMILY, lambda one: one.package)
    indexes = _keyed(kinds.INDEXES, lambda one: one.name)
    #: What people call machines of clouds, boards and their systems.
    machine_names = _optional(kinds.MACHINE_NAMES)
    #: Names of packages in wide use, and mistakes for such names.
    package_names = _optional(kinds.PACKAGE_NAMES)
    #: Functions that glibc and toolkits declare in two ways.
    header_clashes = _optional(kinds.HEADER_CLASHES)
    #: The builds for GPUs of other vendors.
    vendor_routes = _optional(kinds.VENDOR_ROUTES)
    #: What schedulers call facts of nodes.
    job_labels = _optional(kinds.JOB_LABELS)
    #: How often diagnoses were right, by the kind of their grounds.
    precisions = _keyed(kinds.PRECISIONS, lambda one: one.grounds)

    def __init__(self, folder: Path | None = None, overlay: Path | None = None) -> None:
        self._folder = folder or data_folder()
        self._overlay = overlay_folder() if folder is None and overlay is None else overlay
        self._sources: dict[str, Source] = {}
        self._files: dict[str, tuple[Any, ...]] = {}
        self._builds: dict[tuple[tuple[str, ...], str], tuple[Build, ...]] = {}
        self._own_dates: list[str] = []

    def builds(self, package: str) -> tuple[Build, ...]:
        """Every known build of a package on package indexes; empty for a package that has none there."""
        return self._builds_at(self._places[0], package)

    def builds_outside(self, package: str) -> tuple[Build, ...]:
        """The known builds outside of indexes: on release pages and pages of links, known only by their URL."""
        return self._builds_at(self._places[1], package)

    def packages(self) -> tuple[str, ...]:
        """Names of the packages of which builds are known, wherever those are."""
        return tuple(sorted({file.rsplit("/", 1)[-1] for file in self.build_files}))

    @cached_property
    def conda_names(self) -> Mapping[str, str]:
        """Names on conda-forge by the names on the package index, if the two differ."""
        return {n.package: n.conda for n in self._read(kinds.CONDA_NAMES)}

    @cached_property
    def pythons(self) -> tuple[str, ...]:
        """Every Python with known facts, ``3.12``; the one that most packages support comes first.

        Of equals the older one comes first, since more of the packages that the catalogue does not list support it.
        """
        support = {release.version: release.packages for release in self._read(kinds.PYTHONS)}
        tags = {_TAG.fullmatch(tag) for build in self.builds("torch") for tag in build.pythons}
        known = {*support, *(f"3.{match[1]}" for match in tags if match)}
        return tuple(sorted(known, key=lambda python: (-support.get(python, 0), PythonVersion.parse(python))))

    @cached_property
    def known_metadata(self) -> tuple[KnownMetadata, ...]:
        """Metadata in wheels of the newest releases, by package and version; empty if the file is missing."""
        return self._read(kinds.KNOWN_METADATA) if self.has(kinds.KNOWN_METADATA) else ()

    def late_metadata(self) -> Sequence[KnownMetadata | LateMetadata]:
        """:attr:`known_metadata`, each record read when it is needed: a plan needs 30 of 2,236."""
        if not is_file(self._folder / _LATE) or (self._overlay is not None and is_file(self._overlay / _LATE)):
            return self.known_metadata
        return tuple(map(LateMetadata, kinds.read_file(self._folder / _LATE, msgspec.Raw).records))

    def records(self, kind: Kind[Record]) -> tuple[Record, ...]:
        """All records of a kind; those of every package on every index where it is builds."""
        if kind.name == kinds.BUILDS.name:
            return tuple(record for file in self.build_files for record in self._file(file, kind))
        return self._read(kind)

    def has(self, kind: Kind[Any]) -> bool:
        """Whether there is a file of a kind."""
        return any(is_file(folder / f"{kind.name}.json") for folder in self._folders)

    def file(self, name: str) -> tuple[Any, ...]:
        """The records of one file: ``builds/default/torch``, ``tritons``."""
        return self._file(name, kinds.kind_of(name))

    @cached_property
    def build_files(self) -> tuple[str, ...]:
        """The files of builds, ``builds/default/torch``, in order."""
        found = {
            f"builds/{place}/{name.removesuffix('.json')}"
            for folder in self._folders
            for place in self._place_names
            for name in _names_in(folder / "builds" / place)
            if name.endswith(".json")
        }
        return tuple(sorted(found))

    @cached_property
    def _build_files(self) -> frozenset[str]:
        return frozenset(self.build_files)

    def source(self, key: str | None) -> Source | None:
        """The source behind the ``source`` of a record of this catalogue; None for None."""
        return self._sources.get(key) if key else None

    def source_title(self, key: str | None) -> str | None:
        """The title of the source behind the ``source`` of a record, or None."""
        source = self.source(key)
        return source.title if source else None

    @cached_property
    def date(self) -> str | None:
        """ISO date of the newest source among the torch builds: the age of the facts behind a plan."""
        return max(map(self._date, self.builds("torch")), default=None)

    @property
    def own_date(self) -> str | None:
        """ISO date of the newest fact of the user's own directory that holds, among the files read so far."""
        return max(self._own_dates, default=None)

    @property
    def _folders(self) -> tuple[Path, ...]:
        return (self._folder,) if self._overlay is None else (self._folder, self._overlay)

    @cached_property
    def _places(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The places that have files of builds: package indexes, release pages and pages of links."""
        names = self._place_names
        outside = tuple(name for name in names if name != "default" and self.indexes[name].kind != "simple")
        return tuple(name for name in names if name not in outside), outside

    @cached_property
    def _place_names(self) -> tuple[str, ...]:
        """The directories of builds whose URL is known; the user's own may have been written for another envsolve."""
        names = sorted({name for folder in self._folders for name in _names_in(folder / "builds")})
        unknown = [name for name in names if name != "default" and name not in self.indexes]
        if unknown:
            kinds.warn("builds from places that indexes.json does not describe are not used: %s", ", ".join(unknown))
        return tuple(name for name in names if name not in unknown)

    def _builds_at(self, places: tuple[str, ...], package: str) -> tuple[Build, ...]:
        key = (places, package)
        if key not in self._builds:
            files = [name for place in places if (name := f"builds/{place}/{package}") in self._build_files]
            self._builds[key] = tuple(build for file in files for build in self._file(file, kinds.BUILDS))
        return self._builds[key]

    def _read(self, kind: Kind[Record]) -> tuple[Record, ...]:
        return self._file(kind.name, kind)

    def _file(self, file: str, kind: Kind[Record]) -> tuple[Record, ...]:
        if file not in self._files:
            self._files[file] = self._loaded(file, kind)
        return self._files[file]

    def _loaded(self, file: str, kind: Kind[Record]) -> tuple[Record, ...]:
        """The records of a file, those of the user's own directory laid over them."""
        path = self._folder / f"{file}.json"
        own = None if self._overlay is None else read_own_file(self._overlay / f"{file}.json", kind.record)
        bundled: tuple[Record, ...] = ()
        if kind.name != kinds.BUILDS.name or is_file(path):
            bundled, sources = _read_once(path, _written(path), file, cast(Any, kind.record))
            self._sources |= sources
        if own is None or self._overlay is None:
            return bundled
        own_path = self._overlay / f"{file}.json"
        mine, sources = _settled(own_path, f"own/{file}", own)
        self._sources |= sources
        check_forms(mine, own_path)
        holding = in_force(kind, bundled, mine, self._date)
        self._own_dates += map(self._date, holding)
        return laid_over(kind, bundled, holding)

    def _date(self, record: Any) -> str:
        source = self._sources.get(record.source)
        return source.date if source else ""


def _names_in(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:  # pathlib takes ten times as long
            return [entry.name for entry in entries]
    except OSError:
        return []


def _written(path: Path) -> tuple[int, int, int] | None:
    """A value that changes if a file is rewritten; None if the file is missing."""
    found = path.stat() if is_file(path) else None
    return found and (found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1024)
def _read_once(path: Path, written: object, name: str, record: Any) -> tuple[tuple[Any, ...], dict[str, Source]]:
    # A process that asks many questions makes a catalogue for each; decoding was a sixth of the time of a diagnosis.
    return _settled(path, name, kinds.read_file(path, record))


def _settled(path: Path, name: str, file: CatalogueFile[Record]) -> tuple[tuple[Record, ...], dict[str, Source]]:
    """The records of one file as the whole catalogue has them, and their sources."""
    keys = {source: f"{name}:{source}" for source in file.sources}
    try:
        for record in file.records:
            kinds.settle(record, keys, file.requires)
    except KeyError as error:
        hint = f"delete {path}, or restore it"
        raise EnvsolveError(f"the catalogue file {path.name} names {error}, which it lacks", hint=hint) from error
    return file.records, {keys[key]: source for key, source in file.sources.items()}


# For which variants and Pythons torch was ever published.


_VARIANT = r"cu\d{2,3}"


def variants(catalogue: Catalogue) -> tuple[str, ...]:
    """Every variant of a torch build, ``cpu`` first, then by CUDA version."""
    return tuple(sorted({build.variant for build in catalogue.builds("torch")}, key=lambda name: (len(name), name)))


def pythons(catalogue: Catalogue) -> tuple[str, ...]:
    """Every Python that facts are known for, ``3.6``, oldest first."""
    return tuple(sorted(catalogue.pythons, key=PythonVersion.parse))


def nearest_variants(name: str, catalogue: Catalogue) -> tuple[str, ...]:
    """The variants of the next older and the next newer CUDA; empty if there are not both."""
    if not re.fullmatch(_VARIANT, name):
        return ()
    of_cuda = sorted((known for known in variants(catalogue) if known != "cpu"), key=lambda known: _cuda(known[2:]))
    older = [known for known in of_cuda if _cuda(known[2:]) < _cuda(name[2:])]
    newer = [known for known in of_cuda if _cuda(known[2:]) > _cuda(name[2:])]
    return (older[-1], newer[0]) if older and newer else ()


def _cuda(digits: str) -> tuple[int, int]:
    return int(digits[:-1] or 0), int(digits[-1])


# The user's own catalogue directory: facts that ``envsolve index update`` measured since this envsolve was released.
#
# It has the layout of ``index_data/`` and holds only what differs. Of two records of one thing, the one with the newer
# source wins, and the bundled one if both were read on the same day, so that an old measurement never hides the facts
# of a newer envsolve.


def overlay_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """``ENVSOLVE_CATALOGUE``, otherwise ``catalogue`` in the user's data directory. It need not exist."""
    if environ.get("ENVSOLVE_CATALOGUE"):
        return Path(environ["ENVSOLVE_CATALOGUE"])
    return user_folder("data", environ) / "catalogue"


def in_force(
    kind: Kind[Record], bundled: Sequence[Record], own: Sequence[Record], date: Callable[[Record], str]
) -> list[Record]:
    """The records of the user's own directory that take precedence over the bundled ones.

    Args:
        kind: Theirs.
        bundled: What this envsolve carries.
        own: What the user's directory holds.
        date: ISO date on which the source of a record was read.
    """
    newest: dict[tuple[object, ...], str] = {}
    for record in bundled:
        key = kind.identity(record)
        newest[key] = max(newest.get(key, ""), date(record))
    return [record for record in own if date(record) > newest.get(kind.identity(record), "")]


def laid_over(kind: Kind[Record], bundled: Sequence[Record], holding: Sequence[Record]) -> tuple[Record, ...]:
    """Bundled records, those of the user that hold (:func:`in_force`) in place of what they replace, or behind."""
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
