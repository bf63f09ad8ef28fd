"""Typed records of the catalogue: what ``index_data/`` holds, one type per kind of fact.

They are msgspec structs, as all values that a plan needs: thousands are decoded in half the time that dataclasses take,
and making the types takes a tenth of the time at every start. ``msgspec.structs.replace`` makes a changed copy. Those
of which there are thousands are not tracked by the garbage collector: they hold texts and one another, in no circle.
Their annotations are evaluated with their modules: msgspec would compile each one that is a text.

Every record carries its evidence level and the id of its source, so that a verdict can show both; ``cited`` says so of
the fields that are known in another way, and ``disputed`` what other sources claim.
"""

from envsolve.facts.builds import (
    Build,
    CxxStandard,
    ExtensionModule,
    FamilyMember,
    FileFact,
    IndexPlace,
    PythonRelease,
    SharedFiles,
    SourceProject,
    TorchExtension,
)
from envsolve.facts.channels import (
    CondaBuild,
    CondaChannel,
    CondaName,
    Distribution,
    Image,
    ImageRequirement,
    OlderDrivers,
)
from envsolve.facts.evidence import Citation, Dispute, Evidence, KnownMetadata, Precision, Source
from envsolve.facts.hardware import (
    Architecture,
    CompilerPackages,
    DriverBranch,
    Floor,
    GpuModel,
    Ptxas,
    Toolkit,
    TritonRelease,
)

__all__ = [
    "Architecture",
    "Build",
    "Citation",
    "CompilerPackages",
    "CondaBuild",
    "CondaChannel",
    "CondaName",
    "CxxStandard",
    "Dispute",
    "Distribution",
    "DriverBranch",
    "Evidence",
    "ExtensionModule",
    "FamilyMember",
    "FileFact",
    "Floor",
    "GpuModel",
    "Image",
    "ImageRequirement",
    "IndexPlace",
    "KnownMetadata",
    "OlderDrivers",
    "Precision",
    "Ptxas",
    "PythonRelease",
    "SharedFiles",
    "Source",
    "SourceProject",
    "Toolkit",
    "TorchExtension",
    "TritonRelease",
]
