"""Published builds of packages, the indexes that carry them, and what must agree with torch.

CUDA code is written as CUDA writes it: ``sm_90`` and ``sm_90a`` are SASS, ``compute_90`` is PTX.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from envsolve.facts.evidence import Citation, Evidence, Fact
from envsolve.values import CudaVersion

#: Variant of a package with one build for every variant of torch (triton).
ANY = "any"


class FileFact(msgspec.Struct, frozen=True, gc=False):
    """Size in bytes and sha256 of one published file.

    Attributes:
        sources: Independent public files that list the hash, if the record's own source does not. A hash that only one
            source lists is marked wherever it is shown.
    """

    sha256: str | None = None
    size: int | None = None
    sources: tuple[str, ...] = ()


class Build(Fact, frozen=True, gc=False):
    """One published build of a package: one version, variant and platform, for several Pythons.

    Attributes:
        package: Normalised project name.
        version: Public version, ``2.14.1`` (no local part).
        variant: ``cu126`` or ``cpu``: the variant of the code inside, whatever the file name says. A wheel that
            carries several has a record for each. ``any`` where it needs none: it compiles for the GPU itself
            (triton), or its kernels are optional (torchao); ``cuda`` and ``code`` are then those of the kernels.
        platform: Platform part of the wheel's file name, ``manylinux_2_28_x86_64``.
        pythons: Interpreter and ABI parts of the file names, ``cp312``, ``cp313t`` (free-threaded), ``py3-none``.
        index: ``default`` for the default package index, otherwise a key of ``indexes.json`` (``pytorch``).
        local: The local version in the file name (``+cu126``), empty on the default index.
        code: SASS and PTX of the main library: ``("sm_90", "compute_90")``; None if unknown, empty if it has no
            kernels of its own.
        requires: Requires-Dist lines; None if only the index knows them.
        requires_python: Requires-Python, if known.
        torch: For companions: a specifier on torch's public version that the ABI asks for, even if METADATA is silent.
        torch_cuda: For companions that choose by it: a specifier on torch's CUDA version, ``>=12.8,<13``; None if
            the family's rule says it (:class:`FamilyMember`).
        cuda: The toolkit version inside, ``13.0``; None for ``cpu``.
        cudnn: cuDNN that it was built with and that it pins or carries, ``9.10.2``; None if it has or shows none.
        nccl: NCCL in the same form, ``2.27.5``.
        stable_abi: Whether it uses torch only through its stable ABI; ``torch`` then takes every later release.
        cxx11_abi: Whether libstdc++'s C++11 ABI is used; None if unknown, and on Windows.
        own_ptxas: Version of a ptxas inside this very wheel that inductor uses before Triton's (torch +cu118).
        libc: The libc that the files need where their platform tag asks for less or nothing, ``glibc 2.17``.
        system: Platform tag that its libraries are for, if its file name says ``any``: ``manylinux_2_5_x86_64``.
        released: ISO date on which the first file of this version and platform was uploaded.
        build_tag: Build tag of the file names (``3`` in ``torch-2.10.0-3-cp312-...``), the highest published, or empty.
        files: Per entry of ``pythons``, what is known about the file.
        evidence: How the existence of the record is known.
        source: Key into the file's sources.
        cited: Fields that are known in another way than the record, by name.
        disputed: What other sources say.
    """

    package: str
    version: str
    variant: str
    platform: str
    pythons: tuple[str, ...]
    index: str
    evidence: Evidence
    source: str
    local: str = ""
    code: tuple[str, ...] | None = None
    requires: tuple[str, ...] | None = None
    requires_python: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    cxx11_abi: bool | None = None
    stable_abi: bool | None = None
    own_ptxas: str | None = None
    released: str | None = None
    build_tag: str = ""
    libc: str | None = None
    system: str | None = None
    files: Mapping[str, FileFact] = {}

    @property
    def cuda_version(self) -> CudaVersion | None:
        """The toolkit version inside; None for ``cpu``."""
        return CudaVersion.parse(self.cuda) if self.cuda else None

    @property
    def needs_its_torch(self) -> bool:
        """Whether it fails with a torch that ``torch`` excludes; optional kernels are merely not loaded."""
        # A CPU build for one platform is an extension on torch's ABI, also if it goes with any variant.
        return self.torch is not None and (self.variant != ANY or (self.cuda is None and self.platform != "any"))

    @property
    def made_for(self) -> str:
        """The platform tag of the systems that it runs on, which that of its file name may not say."""
        return self.system or self.platform

    def filename(self, python: str) -> str:
        """The wheel's file name for one entry of ``pythons``."""
        version = f"{self.version}{self.local}" + (f"-{self.build_tag}" if self.build_tag else "")
        return f"{self.package.replace('-', '_')}-{version}-{_tags(python)}-{self.platform}.whl"

    def known(self, name: str) -> Citation:
        """How a field is known."""
        return self.cited.get(name) or Citation(self.evidence, self.source)


def _tags(python: str) -> str:
    """Interpreter and ABI parts of a file name: ``cp312-cp312``, ``cp313-cp313t``, ``cp37-cp37m``."""
    if "-" in python:
        return python
    if python in ("cp36", "cp37"):
        return f"{python}-{python}m"
    return f"{python.rstrip('t')}-{python}"


class SourceProject(Fact, frozen=True):
    """A package that is compiled against the installed torch and CUDA, or at run time, and what the build requires.

    Attributes:
        package: Normalised name; ``versions`` is a specifier on its versions.
        torch: Specifier on torch's version, None if torch is not needed.
        cuda: Specifier on the toolkit's version, ``>=12.3``.
        min_cc: Lowest compute capability it compiles for.
        cxx_standard: C++ standard that its sources require, ``17``.
        compiles: When CUDA code is compiled: while it is installed, when it is first used, or at both times.
        gpu_only: Whether nothing of it runs without a GPU, as its own requirements state.
        tools: Programs that this requires: ``nvcc``, ``c++``, ``ninja``.
        cuda_libraries: Parts of the toolkit that it needs besides the compiler and torch's libraries: ``curand``.
        arch_variable: Environment variable that says which GPUs it is compiled for.
        arch_form: How two GPUs are written in it.
        archs: The compute capabilities that can be written there; empty for all that its nvcc knows.
        variables: Environment variables that its build requires: to compile GPU code on a host without a GPU, and to
            compile instead of fetching a wheel that nobody checked.
        cuda_option: Option of its ``setup.py`` that makes it compile GPU code if its build sees no GPU. Without the
            option it would compile for the CPU only. None if it does not need one, or if ``variables`` are enough.
        build_requires: Packages to install before it if it is built without isolation.
        wheel_packages: The same project as wheels, by CUDA major: ``cupy-cuda13x``.
        requires: What it depends on where only its build says so, so that its tree cannot be asked; None if that was
            not read.
    """

    package: str
    versions: str
    compiles: Literal["install", "use", "both"]
    evidence: Evidence
    source: str
    gpu_only: bool = False
    torch: str | None = None
    cuda: str | None = None
    min_cc: str | None = None
    cxx_standard: int | None = None
    tools: tuple[str, ...] = ()
    cuda_libraries: tuple[str, ...] = ()
    arch_variable: str | None = None
    arch_form: Literal["8.0;9.0", "80;90", "80,90"] = "8.0;9.0"
    archs: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    cuda_option: str | None = None
    build_requires: tuple[str, ...] = ()
    wheel_packages: Mapping[str, str] = {}
    requires: tuple[str, ...] | None = None


class FamilyMember(msgspec.Struct, frozen=True):
    """A package whose builds must agree with torch on one variant.

    Attributes:
        package: Normalised name.
        agrees_on: What its builds share with torch: the exact ``variant`` (torchvision links torch's CUDA code), the
            CUDA ``major`` (vllm: it links the CUDA runtime), or ``nothing`` (triton: one build is for every variant).
        index: Key of ``indexes.json`` that carries its variants, or ``default``.
        programs: Words of reports of programs that import it beside torch, lower case.
        optional: Whether it works on the CPU if its GPU code does not run: TensorFlow beside torch reads data.
        contained: Whether its own library has all CUDA code that it uses, so that its PTX runs on every later GPU.
        code_in: Packages that hold its GPU code, if it has none of its own; empty for one that compiles when it runs.
    """

    package: str
    agrees_on: Literal["variant", "major", "nothing"]
    index: str
    evidence: Evidence
    source: str
    programs: tuple[str, ...] = ()
    optional: bool = False
    contained: bool = False
    code_in: tuple[str, ...] | None = None


class PythonRelease(Fact, frozen=True):
    """A Python feature release and how widely packages support it.

    Attributes:
        version: ``3.12``.
        packages: Packages of the catalogue, among those still released, whose newest release has a wheel for it.
    """

    version: str
    packages: int
    evidence: Evidence
    source: str


class IndexPlace(msgspec.Struct, frozen=True):
    """A place outside the default package index that carries builds.

    Attributes:
        url: Its URL; may hold ``{variant}``, ``{torch}`` (``2.8``), ``{tag}`` and ``{filename}``.
        kind: ``simple`` for a package index, ``links`` for one page of links to wheels, ``release`` where ``url`` is
            the URL of each file.
        tags: The release of a version, if it is not ``v`` and the version.
        scheme: The URL of each file that a page of links leads to, if these follow a scheme. Used if the page cannot be
            read.
    """

    name: str
    url: str
    evidence: Evidence
    source: str
    kind: Literal["simple", "links", "release"] = "simple"
    tags: Mapping[str, str] = {}
    scheme: str | None = None


# What compiling an extension against torch asks of compilers.


class TorchExtension(Fact, frozen=True):
    """Requirements of one torch version on code compiled against it: its headers, ``torch.utils.cpp_extension``.

    Attributes:
        version: Public version of torch.
        cxx_standard: The newer of the C++ standard that its headers demand and that it passes to the compiler, ``17``.
        archs: Entries that ``TORCH_CUDA_ARCH_LIST`` may hold, ``9.0a``; others are an error.
        gcc: Major of the gcc that compiled the wheel itself.
        gcc_min: Oldest gcc major that the headers accept by name; None if they name none.
        gcc_below: By CUDA version, the gcc major from which on ``torch.utils.cpp_extension`` refuses to compile.
    """

    version: str
    cxx_standard: int
    archs: tuple[str, ...]
    evidence: Evidence
    source: str
    gcc: int | None = None
    gcc_min: int | None = None
    gcc_below: Mapping[str, int] = {}


class ExtensionModule(Fact, frozen=True):
    """The package that a compiled module belongs to. If a text has several of the names, the first record counts.

    Attributes:
        name: What its modules and libraries have in their names, in lower case: ``selective_scan``.
        package: ``mamba-ssm``.
    """

    name: str
    package: str
    evidence: Evidence
    source: str


class CxxStandard(Fact, frozen=True):
    """The oldest compilers that implement a C++ standard under its final name and ``__cplusplus`` value.

    Attributes:
        standard: ``17``.
        gcc_min: gcc's major; ``clang_min`` is clang's; ``msvc_min`` is ``_MSC_VER``.
    """

    standard: int
    gcc_min: int
    clang_min: int
    evidence: Evidence
    source: str
    msvc_min: int | None = None


class KnownMetadata(Fact, frozen=True, gc=False):
    """The METADATA that wheels of one release have in common, as far as a resolver reads it.

    A hash identifies the contents of a file: if an index states one of these hashes, this is the file's metadata.

    Attributes:
        package: Normalised.
        sha256: Of each wheel.
        requires: Requires-Dist lines.
        extras: Provides-Extra, as METADATA spells them.
    """

    package: str
    version: str
    sha256: tuple[str, ...]
    evidence: Evidence
    source: str
    requires: tuple[str, ...] = ()
    requires_python: str | None = None
    extras: tuple[str, ...] = ()


class Dependents(Fact, frozen=True):
    """Packages whose newest release requires the same GPU packages, directly or through others.

    Attributes:
        packages: Normalised names.
        brings: Requirement lines as first written; empty if there are none.
    """

    packages: tuple[str, ...]
    brings: tuple[str, ...]
    evidence: Evidence
    source: str


# Conda channels, their builds, and what projects are called there.


class CondaChannel(Fact, frozen=True):
    """Facts about a conda channel: whether it ended, has terms, or conflicts with others.

    Attributes:
        name: As ``conda install -c`` accepts it; a pattern if it ends in ``*``: ``nvidia/label/*``.
        addresses: Addresses that mean it, besides its name at anaconda.org.
        says: What it is, in words that go behind its name.
        fix: What to do about it, in words.
        last: Last version of a package on a discontinued channel, ``{"pytorch": "2.5.1"}``.
        clashes: Channels with which it should not be mixed, by name.
        clash: Why, in words.
    """

    name: str
    says: str
    evidence: Evidence
    source: str
    addresses: tuple[str, ...] = ()
    remedy: str | None = None
    last: Mapping[str, str] = {}
    clashes: tuple[str, ...] = ()
    clash: str | None = None


class CondaName(Fact, frozen=True):
    """A project whose package on conda-forge has another name than on the package index: ``torch``, ``pytorch``."""

    package: str
    conda: str
    evidence: Evidence
    source: str


class CondaBuild(Fact, frozen=True):
    """One build of a package on a conda channel, for several Pythons.

    Attributes:
        channel: ``conda-forge`` or ``pytorch``.
        subdir: ``linux-64``, ``linux-aarch64``, ``win-64``.
        build: Pattern of its build strings as a match spec has it, ``cuda129_*``.
        number: Build number of the recipe. conda-forge adds 200 to it for CUDA and 100 for MKL.
        pythons: Python versions, ``3.12``; empty if they are not known.
        cuda: CUDA version that it is built with; None for a CPU build.
        code: SASS and PTX, written as for :class:`envsolve.facts.builds.Build`.
        libc: The libc that it asks for, ``glibc 2.17``.
        triton: The Triton version that it depends on.
        arm: Whether an aarch64 build is for servers (``sbsa``) or for Jetson (``tegra``).
        depends: Dependencies that decide where it installs: ``__cuda``, ``cuda-version >=12.9,<13``.
        constrains: Its run constraints.
        released: ISO date of the recipe's change.
    """

    package: str
    version: str
    channel: str
    subdir: str
    build: str
    number: int
    evidence: Evidence
    source: str
    pythons: tuple[str, ...] = ()
    cuda: str | None = None
    code: tuple[str, ...] | None = None
    libc: str | None = None
    triton: str | None = None
    arm: Literal["sbsa", "tegra"] | None = None
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    released: str | None = None
