"""The kinds of facts: for each the file that holds it, its record, and what tells one record from another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from envsolve.catalogue.model import (
    Architecture,
    Build,
    CompilerPackages,
    CondaBuild,
    CondaChannel,
    CondaName,
    CxxStandard,
    Distribution,
    DriverBranch,
    ExtensionModule,
    FamilyMember,
    Floor,
    GpuModel,
    Image,
    ImageRequirement,
    IndexPlace,
    KnownMetadata,
    Precision,
    SharedFiles,
    Signature,
    SourceProject,
    Toolkit,
    TorchExtension,
    TritonRelease,
)

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


ARCHITECTURES = Kind("architectures", Architecture, ("compute_capability",))
# Builds of one version, variant and platform may need a record for each of their Pythons: such records stand together.
BUILDS = Kind("builds", Build, ("package", "index", "version", "local", "variant", "platform"))
COMPILERS = Kind("compilers", CompilerPackages, ("manager", "first", "packages"))
CONDA = Kind("conda", CondaBuild, ("package", "version", "channel", "subdir", "build", "number", "pythons"))
CONDA_CHANNELS = Kind("conda_channels", CondaChannel, ("name",))
CONDA_NAMES = Kind("conda_names", CondaName, ("package",))
CXX_STANDARDS = Kind("cxx_standards", CxxStandard, ("standard",))
DISTRIBUTIONS = Kind("distributions", Distribution, ("name",))
DRIVERS = Kind("drivers", DriverBranch, ("branch",))
EXTENSION_MODULES = Kind("extension_modules", ExtensionModule, ("name",))
FAMILY = Kind("family", FamilyMember, ("package",))
FLOORS = Kind("floors", Floor, ("first",))
GPUS = Kind("gpus", GpuModel, ("name",))
IMAGE_REQUIREMENTS = Kind("image_requirements", ImageRequirement, ("version",))
IMAGES = Kind("images", Image, ("repository", "version", "distribution"))
INDEXES = Kind("indexes", IndexPlace, ("name",))
# Wheels of one release may differ in what they say: such records stand together.
KNOWN_METADATA = Kind("known_metadata", KnownMetadata, ("package", "version", "sha256"))
PRECISIONS = Kind("precisions", Precision, ("grounds",))
SHARED_FILES = Kind("shared_files", SharedFiles, ("package", "versions"))
SIGNATURES = Kind("signatures", Signature, ("id",))
SOURCE_PROJECTS = Kind("source_projects", SourceProject, ("package", "versions"))
TOOLKITS = Kind("toolkits", Toolkit, ("version",))
TORCH_EXTENSIONS = Kind("torch_extensions", TorchExtension, ("version",))
TRITONS = Kind("tritons", TritonRelease, ("version",))

KINDS: Mapping[str, Kind[Any]] = {
    kind.name: kind
    for kind in (
        BUILDS,
        TRITONS,
        TOOLKITS,
        COMPILERS,
        TORCH_EXTENSIONS,
        CXX_STANDARDS,
        EXTENSION_MODULES,
        DRIVERS,
        FLOORS,
        GPUS,
        ARCHITECTURES,
        CONDA,
        CONDA_CHANNELS,
        CONDA_NAMES,
        IMAGES,
        IMAGE_REQUIREMENTS,
        DISTRIBUTIONS,
        SOURCE_PROJECTS,
        FAMILY,
        INDEXES,
        SHARED_FILES,
        KNOWN_METADATA,
        SIGNATURES,
        PRECISIONS,
    )
}


def kind_of(file: str) -> Kind[Any]:
    """The kind of a catalogue file, by its path inside the folder: ``builds/default/torch.json``, ``gpus.json``.

    Raises:
        KeyError: No kind has such a file.
    """
    return KINDS[file.split("/")[0].removesuffix(".json")]
