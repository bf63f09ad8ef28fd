"""How a fact is known: evidence levels, sources, and what else was said about it; and how packages behave together."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.specifiers import SpecifierSet


class Evidence(str, Enum):
    """How a fact is known, best first."""

    MEASURED = "measured"
    PUBLISHED = "published"
    DOCUMENTED = "documented"
    INFERRED = "inferred"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Evidence).index(self)


class Source(msgspec.Struct, frozen=True, gc=False):
    """The source of a fact: a title, a URL if there is a public one, and the date when it was read (ISO)."""

    title: str
    date: str
    url: str | None = None


class Citation(msgspec.Struct, frozen=True, gc=False):
    """Evidence for one field of a record, if it differs from that of the record as a whole.

    Attributes:
        source: Key into the file's sources.
    """

    evidence: Evidence
    source: str


class Dispute(msgspec.Struct, frozen=True, gc=False):
    """The value of a field in another source. The record's own value wins, for the reason given.

    Attributes:
        field: Name of the record's field.
        says: The other value, as that source has it.
        source: Key into the file's sources.
        wins: Why the record's value is used: ``a measurement beats a build script``.
    """

    field: str
    says: str
    evidence: Evidence
    source: str
    wins: str


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence for a fact: everything known about it except its values and its source.

    Attributes:
        cited: How fields are known that are known in another way than the record, by name.
        disputed: Other values of its fields, and their sources.
    """

    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


# Records of how far a diagnosis can be trusted.


class Precision(msgspec.Struct, frozen=True):
    """How often diagnoses with one kind of grounds were right on known reports.

    Attributes:
        grounds: The kind, a value of ``envsolve.diagnose.model.Grounds``.
        right: Reports on which the first diagnosis had such grounds and named the right cause.
        of: Reports on which the first diagnosis had such grounds.
    """

    grounds: str
    right: int
    of: int
    evidence: Evidence
    source: str


# How packages behave beside others, and when they are used.


class SharedFiles(msgspec.Struct, frozen=True):
    """Versions of a package that install files under the same paths as another package does: of two, one overwrites.

    Attributes:
        package: Normalised name; ``versions`` is a specifier on its versions.
        owner: The package whose files they are, in all its versions.
        stands_in: Whether it has the owner's modules and version numbers, so that it can replace it.
    """

    package: str
    versions: str
    owner: str
    evidence: Evidence
    source: str
    stands_in: bool = False


class CompiledAgainst(msgspec.Struct, frozen=True):
    """Versions of a package that work only with certain versions of another, whatever their metadata says.

    Their binaries call it by an ABI, or it calls them by an interface, that its other versions do not have.

    Attributes:
        package: Normalised name; ``versions`` is a specifier on its versions.
        module: The other package.
        module_versions: A specifier on the versions of ``module`` that are compatible with it, ``<2``.
        published_before: Of all packages (``*``), only files from before this day, when ``module`` first had a new ABI.
    """

    package: str
    versions: str
    module: str
    module_versions: str
    evidence: Evidence
    source: str
    published_before: str | None = None


class Placeholder(msgspec.Struct, frozen=True):
    """What the placeholder of a project says, which only reserves the name.

    Attributes:
        summary: The begin of its Summary.
        index: The index that has the project itself.
    """

    summary: str
    evidence: Evidence
    source: str
    index: str | None = None


class WheelStub(msgspec.Struct, frozen=True):
    """A build backend that compiles nothing: it downloads a wheel from an index.

    Attributes:
        backend: As ``build-backend`` of pyproject.toml names it.
        index: The index, if the pyproject.toml of the sdist does not name another.
    """

    backend: str
    index: str
    evidence: Evidence
    source: str


class PackageNames(msgspec.Struct, frozen=True):
    """Names that people use for packages.

    Attributes:
        names: Normalised. They are real packages in wide use, or if ``means`` or ``note`` is given, mistakes.
        means: The package that is intended.
        note: Another hint.
    """

    names: tuple[str, ...]
    evidence: Evidence
    source: str
    means: str | None = None
    note: str | None = None


class FastPath(msgspec.Struct, frozen=True):
    """GPUs for which a build has special kernels on one fast path.

    Attributes:
        package: Normalised name; ``version`` and ``variant`` are those of the build.
        path: Name of the path, ``flash attention``.
        code: Architectures of the kernels, ``sm_90a``; empty if the build has none.
    """

    package: str
    version: str
    variant: str
    path: str
    code: tuple[str, ...]
    evidence: Evidence
    source: str


class FirstUse(msgspec.Struct, frozen=True):
    """Something that a package downloads or compiles when it is first used, and not when it is installed.

    Attributes:
        package: Normalised name.
        what: What it is, in a sentence without a subject: ``compiles a launcher for each kernel``.
        kind: ``download`` or ``compile``.
        provided_by: Packages of which any one makes it unnecessary, or holds what is needed.
        host_compiler: Whether a C or C++ compiler on the machine is what is needed.
        fix: What to do beforehand.
    """

    package: str
    what: str
    kind: Literal["download", "compile"]
    fix: str
    evidence: Evidence
    source: str
    provided_by: tuple[str, ...] = ()
    host_compiler: bool = False


class GpuPart(msgspec.Struct, frozen=True):
    """What a package needs to use a GPU and does not require itself.

    Of several records that apply to one version, the first whose CUDA the machine can run is recommended.

    Attributes:
        package: Normalised name; ``versions`` is a specifier on its versions.
        lacks: What is missing, as a sentence ends with it: ``its GPU code, jax-cuda13-plugin``.
        provided_by: Packages of which any one provides it.
        ask: The requirements to request, ``jax[cuda13]``; None if nothing that is published helps.
        cuda: The last toolkit of their CUDA family that supports as many GPUs.
        system: The only system that the record is about, ``windows``, or its only platform, ``linux-aarch64``.
        requested: Whether it counts only if the package was requested by name: others use it on the CPU on purpose.
        source_build: Whether it counts only if the package is compiled from its sdist.
        note: Another hint.
    """

    package: str
    versions: str
    lacks: str
    evidence: Evidence
    source: str
    provided_by: tuple[str, ...] = ()
    ask: str | None = None
    cuda: str | None = None
    system: str | None = None
    requested: bool = False
    source_build: bool = False
    note: str | None = None

    def is_for(self, platform: str) -> bool:
        """Whether the record is about a platform, ``linux-aarch64``."""
        return self.system is None or f"{platform}-".startswith(f"{self.system}-")

    def is_about(self, package: str, version: str) -> bool:
        """Whether a release of a package needs it."""
        return self.package == package and SpecifierSet(self.versions, prereleases=True).contains(version)


class GpuSupport(msgspec.Struct, frozen=True):
    """The GPUs that releases run on, of projects whose files show it in no way that can be measured.

    Attributes:
        packages: Normalised names; ``versions`` is a specifier on their versions.
        min_cc: Lowest compute capability, ``7.5``; None for any.
        max_cc: Highest one, ``9.0``; None if every newer one was added so far.
    """

    packages: tuple[str, ...]
    versions: str
    min_cc: str | None
    max_cc: str | None
    evidence: Evidence
    source: str


# What the name or the directory of a wheel says that it was compiled for: torch, CUDA and the C++ ABI. The ways in
# which projects write it are facts, so that a file that nobody has listed is understood.


class WheelName(msgspec.Struct, frozen=True):
    """One pattern of wheel names; if several match, the first one that states a property decides it.

    Attributes:
        name: Of the way of writing.
        part: Where it is: in the local version of the file's name, or in the directories before it.
        pattern: A regular expression without regard to case. Its groups: ``major`` and ``minor`` of torch, ``higher``
            if later releases serve too, ``variant`` (``cu128``), ``cuda`` (the digits after ``cu`` if any CUDA of that
            major serves), ``abi`` (``TRUE`` for the C++11 ABI).
        examples: What files in public use say, by file or URL: ``torch==2.8.* cu12 abi=TRUE``.
    """

    name: str
    part: Literal["local", "directory"]
    pattern: str
    examples: Mapping[str, str]
    evidence: Evidence
    source: str


class MadeFor(msgspec.Struct, frozen=True):
    """A wheel's own statements; None for those that it does not make.

    Attributes:
        torch: A specifier, ``==2.8.*``.
        variant: ``cu128``; exactly this one.
        cuda_major: Any CUDA of this major.
        cxx11_abi: Whether it was compiled with the C++11 ABI.
    """

    torch: str | None = None
    variant: str | None = None
    cuda_major: int | None = None
    cxx11_abi: bool | None = None

    @property
    def major(self) -> int | None:
        """The CUDA major, whether exactly one variant is meant or any of the major."""
        return int(self.variant[2:4]) if self.variant and self.variant.startswith("cu") else self.cuda_major

    def __str__(self) -> str:
        """``torch==2.8.* cu12 abi=TRUE``."""
        cuda = self.variant or (f"cu{self.cuda_major}" if self.cuda_major else None)
        abi = None if self.cxx11_abi is None else f"abi={str(self.cxx11_abi).upper()}"
        return " ".join(filter(None, (self.torch and f"torch{self.torch}", cuda, abi)))


def made_for(place: str, names: Sequence[WheelName]) -> MadeFor:
    """The targets that a wheel was compiled for.

    Args:
        place: Its URL or file name.
        names: The ways of writing it.
    """
    directory, _, filename = unquote(urlsplit(place).path).rpartition("/")
    if not filename.endswith(".whl"):
        return MadeFor()
    # A package may be called onnx2torch: nothing but its local version and its directories are read.
    parts = {"local": filename.split("-", 2)[1].partition("+")[2]}
    if not filename.endswith("-none-any.whl"):
        parts["directory"] = directory
    said: dict[str, str] = {}
    for name in names:
        match = re.search(name.pattern, parts.get(name.part, ""), re.IGNORECASE)
        groups = {key: value for key, value in match.groupdict().items() if value} if match else {}
        if {"variant", "cuda"} & {*groups} and {"variant", "cuda"} & {*said}:
            continue
        if "major" not in groups or "major" not in said:
            said |= {key: value for key, value in groups.items() if key not in said}
    release = f"{said['major']}.{said['minor']}" if "minor" in said else None
    return MadeFor(
        torch=release and (f">={release}" if "higher" in said else f"=={release}.*"),
        variant=said["variant"].lower() if "variant" in said else None,
        cuda_major=int(said["cuda"][:2]) if "cuda" in said else None,
        cxx11_abi=said["abi"].lower() == "true" if "abi" in said else None,
    )
