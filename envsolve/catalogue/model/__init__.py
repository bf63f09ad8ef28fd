"""Typed records of the catalogue: what ``index_data/`` holds, one type per kind of fact.

They are msgspec structs, as all values that a plan needs: thousands are decoded in half the time that dataclasses take,
and making the types takes a tenth of the time at every start. ``msgspec.structs.replace`` makes a changed copy. Those
of which there are thousands are not tracked by the garbage collector: they hold texts and one another, in no circle.
Their annotations are evaluated with their modules: msgspec would compile each one that is a text.

Every record carries its evidence level and the id of its source, so that a verdict can show both; ``cited`` says so of
the fields that are known in another way, and ``disputed`` what other sources claim.
"""

from envsolve.catalogue.model.builds import (
    Build,
    FamilyMember,
    FileFact,
    IndexPlace,
    SharedFiles,
    SourceProject,
)
from envsolve.catalogue.model.channels import CondaChannel, CondaName
from envsolve.catalogue.model.conda import CondaBuild
from envsolve.catalogue.model.evidence import Citation, Dispute, Evidence, Source
from envsolve.catalogue.model.extensions import CxxStandard, ExtensionModule, TorchExtension
from envsolve.catalogue.model.hardware import Architecture, DriverBranch, Floor, GpuModel
from envsolve.catalogue.model.images import Distribution, Image, ImageRequirement, OlderDrivers
from envsolve.catalogue.model.known import KnownMetadata
from envsolve.catalogue.model.signatures import Precision, Signature
from envsolve.catalogue.model.toolkits import CompilerPackages, Ptxas, Toolkit, TritonRelease

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
    "SharedFiles",
    "Signature",
    "Source",
    "SourceProject",
    "Toolkit",
    "TorchExtension",
    "TritonRelease",
]
