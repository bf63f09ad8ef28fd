"""Reading ``index_data/`` into typed records, each file only when something asks for it.

Each file is ``{"schema": "envsolve.catalogue/1", "sources": {id: Source}, "records": [...]}``. Files under
``builds/<index>/<package>.json`` also hold ``"requires": {group: [Requires-Dist line, ...]}``; a build's ``requires``
names groups there, so that builds that share their dependencies share one list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec

from envsolve.catalogue.model import (
    Architecture,
    Build,
    Citation,
    CompilerPackages,
    CondaBuild,
    Distribution,
    DriverBranch,
    FamilyMember,
    FileFact,
    Floor,
    GpuModel,
    Image,
    ImageRequirement,
    IndexPlace,
    Precision,
    Signature,
    Source,
    SourceProject,
    Toolkit,
    TritonRelease,
)
from envsolve.errors import EnvsolveError

Record = TypeVar("Record")
Sourced = TypeVar(
    "Sourced",
    Architecture,
    Build,
    CompilerPackages,
    CondaBuild,
    Distribution,
    DriverBranch,
    FamilyMember,
    Floor,
    GpuModel,
    Image,
    ImageRequirement,
    IndexPlace,
    Precision,
    Signature,
    SourceProject,
    Toolkit,
    TritonRelease,
)


class CatalogueFile(msgspec.Struct, Generic[Record], frozen=True, forbid_unknown_fields=True):
    """One file of ``index_data/``."""

    schema: Literal["envsolve.catalogue/1"]
    sources: dict[str, Source]
    records: tuple[Record, ...]
    requires: dict[str, tuple[str, ...]] = {}


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


def read_file(path: Path, record: type[Record]) -> CatalogueFile[Record]:
    """One file, decoded and checked, with the groups of ``requires`` as they are written.

    Raises:
        EnvsolveError: It is missing, or not a catalogue file of such records.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=CatalogueFile[record])  # type: ignore[valid-type]
    except (OSError, msgspec.MsgspecError) as error:
        raise EnvsolveError(
            f"the catalogue file {path.name} cannot be read: {error}", hint="reinstall envsolve"
        ) from error


class Catalogue:
    """The facts, loaded on demand and kept for the life of the object."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or data_folder()
        self._sources: dict[str, Source] = {}
        self._builds: dict[str, tuple[Build, ...]] = {}

    def builds(self, package: str) -> tuple[Build, ...]:
        """Every known build of a package on every index; empty for a package that the catalogue does not describe."""
        if package not in self._builds:
            found: list[Build] = []
            for path in sorted(self._folder.glob(f"builds/*/{package}.json")):
                file = self._read(path, Build)
                for build in file.records:
                    groups = build.requires
                    lines = None if groups is None else tuple(line for g in groups for line in file.requires[g])
                    found.append(self._keyed(path, replace(build, requires=lines)))
            self._builds[package] = tuple(found)
        return self._builds[package]

    @cached_property
    def tritons(self) -> tuple[TritonRelease, ...]:
        """Triton releases and their assemblers."""
        return self._records("tritons", TritonRelease)

    @cached_property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """CUDA toolkit releases."""
        return self._records("toolkits", Toolkit)

    @cached_property
    def floors(self) -> tuple[Floor, ...]:
        """Driver floors of the CUDA families."""
        return self._records("floors", Floor)

    @cached_property
    def drivers(self) -> tuple[DriverBranch, ...]:
        """Driver branches, oldest first."""
        return self._records("drivers", DriverBranch)

    @cached_property
    def gpus(self) -> tuple[GpuModel, ...]:
        """GPU models."""
        return self._records("gpus", GpuModel)

    @cached_property
    def architectures(self) -> Mapping[str, Architecture]:
        """Architectures by compute capability (``"8.9"``)."""
        return {a.compute_capability: a for a in self._records("architectures", Architecture)}

    @cached_property
    def compilers(self) -> tuple[CompilerPackages, ...]:
        """Packages that make up a CUDA compiler."""
        return self._records("compilers", CompilerPackages)

    @cached_property
    def source_projects(self) -> tuple[SourceProject, ...]:
        """Packages that are compiled against the torch and CUDA at hand."""
        return self._records("source_projects", SourceProject)

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """Container images."""
        return self._records("images", Image)

    @cached_property
    def image_requirements(self) -> Mapping[str, ImageRequirement]:
        """What ``nvidia/cuda`` images ask of the driver, by toolkit release."""
        return {r.version: r for r in self._records("image_requirements", ImageRequirement)}

    @cached_property
    def distributions(self) -> Mapping[str, Distribution]:
        """Linux distributions by name, as image tags write it."""
        return {d.name: d for d in self._records("distributions", Distribution)}

    @cached_property
    def conda(self) -> tuple[CondaBuild, ...]:
        """Builds on conda channels."""
        return self._records("conda", CondaBuild)

    @cached_property
    def family(self) -> Mapping[str, FamilyMember]:
        """Torch-family packages by name."""
        return {m.package: m for m in self._records("family", FamilyMember)}

    @cached_property
    def indexes(self) -> Mapping[str, IndexPlace]:
        """Package indexes outside the default one, by key."""
        return {p.name: p for p in self._records("indexes", IndexPlace)}

    @cached_property
    def signatures(self) -> tuple[Signature, ...]:
        """Error signatures, the specific before the general."""
        return self._records("signatures", Signature)

    @cached_property
    def precisions(self) -> Mapping[str, Precision]:
        """How often diagnoses were right, by the kind of their grounds."""
        return {p.grounds: p for p in self._records("precisions", Precision)}

    def source(self, key: str | None) -> Source | None:
        """The source behind the ``source`` of a record of this catalogue; None for None."""
        return self._sources.get(key) if key else None

    @cached_property
    def date(self) -> str | None:
        """ISO date of the newest source among the torch builds: the age of what a plan stands on."""
        self.builds("torch")
        return max((s.date for s in self._sources.values()), default=None)

    def _records(self, name: str, record: type[Sourced]) -> tuple[Sourced, ...]:
        path = self._folder / f"{name}.json"
        return tuple(self._keyed(path, record) for record in self._read(path, record).records)

    def _read(self, path: Path, record: type[Record]) -> CatalogueFile[Record]:
        file = read_file(path, record)
        self._sources.update({self._key(path, name): source for name, source in file.sources.items()})
        return file

    def _keyed(self, path: Path, record: Sourced) -> Sourced:
        """A record whose source ids are those of the whole catalogue."""
        changes: dict[str, Any] = {"source": self._key(path, record.source)}
        if cited := getattr(record, "cited", None):
            changes["cited"] = {f: Citation(c.evidence, self._key(path, c.source)) for f, c in cited.items()}
        if disputed := getattr(record, "disputed", None):
            changes["disputed"] = tuple(replace(d, source=self._key(path, d.source)) for d in disputed)
        if isinstance(record, Build) and any(fact.sources for fact in record.files.values()):
            changes["files"] = {p: self._keyed_file(path, fact) for p, fact in record.files.items()}
        return replace(record, **changes)

    def _keyed_file(self, path: Path, fact: FileFact) -> FileFact:
        return replace(fact, sources=tuple(self._key(path, source) for source in fact.sources))

    def _key(self, path: Path, source: str) -> str:
        """A source's key among all files: every file names its own."""
        return f"{path.relative_to(self._folder).with_suffix('').as_posix()}:{source}"
