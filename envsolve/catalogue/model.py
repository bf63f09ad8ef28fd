"""Typed records of the catalogue: what ``index_data/`` holds, one dataclass per kind of fact.

Every record carries its evidence level and the id of its source, so that a verdict can show both. CUDA code is written
as CUDA writes it: ``sm_90`` and ``sm_90a`` are SASS, ``compute_90`` is PTX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal


class Evidence(str, Enum):
    """How a fact is known, best first."""

    MEASURED = "measured"
    PUBLISHED = "published"
    DOCUMENTED = "documented"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True)
class Source:
    """Where facts come from: a title, an address where there is a public one, and the date they were read (ISO)."""

    title: str
    date: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class FileFact:
    """Size in bytes and sha256 of one published file."""

    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Build:
    """One published build of a torch-family package: one version, variant and platform, for several Pythons.

    Attributes:
        package: Normalised project name.
        version: Public version, ``2.14.1`` (no local part).
        variant: ``cu126`` or ``cpu``: the CUDA flavour of the code inside, whatever the file name says.
        platform: Platform part of the wheel's file name, ``manylinux_2_28_x86_64``.
        pythons: Interpreter and ABI parts of the file names, ``cp312``, ``cp313t`` (free-threaded), ``py3-none``.
        index: ``default`` for the default package index, else a key of ``indexes.json`` (``pytorch``).
        local: The local version in the file name (``+cu126``), empty on the default index.
        code: SASS and PTX of the main library: ``("sm_90", "compute_90")``; None where unknown.
        code_evidence: Evidence of ``code`` where it differs from that of the record.
        requires: Requires-Dist lines; None where only the index knows them.
        requires_python: Requires-Python, where known.
        torch: For companions: a specifier on torch's public version that the ABI asks for, even if METADATA is silent.
        cuda: The toolkit version inside, ``13.0``; None for ``cpu``.
        own_ptxas: Version of a ptxas inside this very wheel that inductor uses before Triton's (torch +cu118).
        libc: The libc that the files need where their platform tag asks for less or nothing, ``glibc 2.17``.
        released: ISO date on which the first file of this version and platform was uploaded.
        build_tag: Build tag of the file names (``3`` in ``torch-2.10.0-3-cp312-...``), the highest published, or empty.
        files: Per entry of ``pythons``, what is known of the file.
        evidence: How the existence of the record is known.
        source: Key into ``sources.json``.
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
    code_evidence: Evidence | None = None
    requires: tuple[str, ...] | None = None
    requires_python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    own_ptxas: str | None = None
    released: str | None = None
    build_tag: str = ""
    libc: str | None = None
    files: Mapping[str, FileFact] = field(default_factory=dict)

    def filename(self, python: str) -> str:
        """The wheel's file name for one entry of ``pythons``."""
        version = f"{self.version}{self.local}" + (f"-{self.build_tag}" if self.build_tag else "")
        return f"{self.package.replace('-', '_')}-{version}-{_tags(python)}-{self.platform}.whl"


def _tags(python: str) -> str:
    """Interpreter and ABI parts of a file name: ``cp312-cp312``, ``cp313-cp313t``, ``cp37-cp37m``."""
    if "-" in python:
        return python
    if python in ("cp36", "cp37"):
        return f"{python}-{python}m"
    return f"{python.rstrip('t')}-{python}"


@dataclass(frozen=True, slots=True)
class Ptxas:
    """One assembler inside a Triton wheel.

    Attributes:
        file: ``ptxas`` or ``ptxas-blackwell``.
        cuda: CUDA version of the program, ``12.8``: its cubins need that family's driver.
        ptx_isa: Highest PTX version it reads, ``8.7``.
        archs: GPU names it accepts (``sm_90a``, ...).
        min_cc: Lowest compute capability that Triton uses it for.
        max_cc: First compute capability that Triton no longer uses it for; None for no bound.
        override: Environment variable that replaces it.
    """

    file: str
    cuda: str
    ptx_isa: str
    archs: tuple[str, ...]
    min_cc: str
    override: str
    max_cc: str | None = None


@dataclass(frozen=True, slots=True)
class TritonRelease:
    """A Triton release line and the assemblers it bundles.

    Attributes:
        min_cc: Lowest compute capability that it serves.
        arch_specific_from: Lowest compute capability for which it asks its ptxas for arch-specific code (``sm_90a``);
            None where the wheel's sources do not show it.
        needs: Requirements that it imports without declaring them.
    """

    version: str
    ptxas: tuple[Ptxas, ...]
    min_cc: str
    evidence: Evidence
    source: str
    arch_specific_from: str | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A CUDA toolkit release: the driver shipped with it, PTX ISA, architectures, host compiler limits."""

    version: str
    driver_linux: str | None
    driver_windows: str | None
    ptx_isa: str
    archs: tuple[str, ...]
    evidence: Evidence
    source: str
    gcc_max: int | None = None
    clang_below: int | None = None
    msvc_below: int | None = None


@dataclass(frozen=True, slots=True)
class Floor:
    """Oldest driver that runs a CUDA family through minor-version compatibility.

    Attributes:
        first: First CUDA version of the range, ``11.1``.
        last: Last CUDA version of the range, inclusive; None for the whole rest of the major.
        linux: Driver version; ``windows`` likewise.
    """

    first: str
    last: str | None
    linux: str
    windows: str | None
    evidence: Evidence
    source: str


@dataclass(frozen=True, slots=True)
class DriverBranch:
    """A driver branch: the CUDA version and PTX ISA it supports, and the first release of the branch."""

    branch: str
    cuda: str
    ptx_isa: str
    first: str
    evidence: Evidence
    source: str
    lts: bool = False


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU as people name it."""

    name: str
    compute_capability: str
    evidence: Evidence
    source: str
    aliases: tuple[str, ...] = ()
    data_centre: bool = False
    first_driver: str | None = None


@dataclass(frozen=True, slots=True)
class Architecture:
    """Life of a compute capability: the first driver branch that knows it and the last that still serves it.

    Attributes:
        island: True for Tegra parts whose code neither serves nor is served by desktop parts of the same major.
    """

    compute_capability: str
    name: str
    first_driver: str | None
    last_branch: str | None
    evidence: Evidence
    source: str
    island: bool = False
    alias_of: str | None = None


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """A package whose builds must agree with torch on one flavour.

    Attributes:
        package: Normalised name.
        agrees_on: What its builds share with torch: the exact ``variant`` (torchvision links torch's CUDA code), the
            CUDA ``major`` (vllm: it links the CUDA runtime), or ``nothing`` (triton: one build serves every flavour).
        index: Key of ``indexes.json`` that carries its variants, or ``default``.
    """

    package: str
    agrees_on: Literal["variant", "major", "nothing"]
    index: str
    evidence: Evidence
    source: str


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """A package index outside the default one; ``url`` may hold ``{variant}``."""

    name: str
    url: str
    source: str
