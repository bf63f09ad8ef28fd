"""Refreshing the measured part of ``index_data/`` from a package index.

Everything here is a function of an :class:`Index`, which lists a project's files and opens them for ranged reading; one
wheel of each version and platform is measured, the metadata of the others is compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Protocol, TypeVar

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.binaries.files import WheelFile, read_text
from envsolve.binaries.measure import measure_package, torch_libraries
from envsolve.binaries.model import Assembler, Measurement
from envsolve.binaries.tools import HostCompilerLimits, read_choice, read_host_needs, read_limits
from envsolve.facts.builds import Build, FileFact
from envsolve.facts.evidence import Evidence
from envsolve.facts.hardware import Ptxas, Toolkit, TritonRelease
from envsolve.values import CudaVersion

# An index is asked for no more than this many things at a time.
_PARALLEL = 4
_PLATFORM = re.compile(r"manylinux\w*_(x86_64|aarch64)|win_(amd64|arm64)|any")
_WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(-(?P<build>\d+)[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl"
)
# Triton itself checks no compute capability; its own documentation and PyTorch's inductor both start at Volta.
_TRITON_MIN_CC = "7.0"

Item = TypeVar("Item")
Result = TypeVar("Result")


class PublishedFile(Protocol):
    """An index's data on one file; :class:`envsolve.packages.model.IndexFile` is one."""

    @property
    def filename(self) -> str:
        """Percent-decoded file name."""

    @property
    def hashes(self) -> Mapping[str, str]:
        """Algorithm to hex digest."""

    @property
    def size(self) -> int | None:
        """Bytes."""

    @property
    def upload_time(self) -> str | None:
        """ISO 8601."""

    @property
    def yanked(self) -> str | None:
        """Reason, None if it is not yanked."""


class WheelMetadata(Protocol):
    """The part of METADATA that records keep."""

    @property
    def requires_dist(self) -> tuple[str, ...]:
        """Requires-Dist lines."""

    @property
    def requires_python(self) -> str | None:
        """Requires-Python."""

    @property
    def provides_extra(self) -> tuple[str, ...]:
        """Provides-Extra."""


class Index(Protocol):
    """A package index, as far as refreshing needs one; :class:`envsolve.packages.client.IndexClient` is one.

    ``file`` is always one that :meth:`project` gave.
    """

    def project(self, name: str) -> Sequence[PublishedFile]:
        """Every file of a project."""

    def open(self, file: Any) -> IO[bytes]:
        """A file for seeking and ranged reading."""

    def metadata(self, file: Any) -> WheelMetadata:
        """A wheel's METADATA."""


@dataclass(frozen=True)
class Release:
    """The wheels of one version and platform, one per Python, of the highest build tag.

    Attributes:
        released: ISO date of the first upload, over all build tags.
    """

    package: str
    version: Version
    platform: str
    build_tag: str
    files: Mapping[str, PublishedFile]
    released: str | None

    @property
    def representative(self) -> PublishedFile:
        """The wheel that is measured for all: CPython 3.12's where there is one."""
        return self.files.get("cp312") or self.files[min(self.files)]


def releases(files: Iterable[PublishedFile], since: str) -> list[Release]:
    """Group a project's wheels for Linux and Windows by version and platform, oldest version first.

    Args:
        files: As the index lists them; yanked files, other platforms and other interpreters than CPython are left out.
        since: Oldest version wanted.
    """
    groups: dict[tuple[Version, str], dict[int, dict[str, PublishedFile]]] = {}
    dates: dict[tuple[Version, str], list[str]] = {}
    package = ""
    for file in files:
        match = _WHEEL.fullmatch(file.filename)
        if match is None or file.yanked is not None or not _PLATFORM.match(match["platform"]):
            continue
        version = _version(match["version"])
        if version is None or version < Version(since) or not match["python"].startswith(("cp3", "py3")):
            continue
        package = canonicalize_name(match["name"])
        key = (version, match["platform"])
        builds = groups.setdefault(key, {})
        builds.setdefault(int(match["build"] or -1), {})[python_key(match["python"], match["abi"])] = file
        if file.upload_time:
            dates.setdefault(key, []).append(file.upload_time[:10])
    return [
        Release(
            package, version, platform, str(tag) if tag >= 0 else "", builds[tag], min(dates.get(key, []), default=None)
        )
        for key, builds in sorted(groups.items(), key=lambda group: group[0])
        for (version, platform), tag in [(key, max(builds))]
    ]


def python_key(interpreter: str, abi: str) -> str:
    """The catalogue's name for a wheel's Python: ``cp312``, ``cp313t``, ``cp37`` (for cp37m), otherwise both parts."""
    if abi == interpreter or (abi == f"{interpreter}m" and interpreter in ("cp36", "cp37")):
        return interpreter
    return abi if abi == f"{interpreter}t" else f"{interpreter}-{abi}"


def python_order(key: str) -> tuple[int, str]:
    """Sort key that puts ``cp39`` before ``cp310``."""
    digits = re.search(r"\d+", key)
    return (int(digits[0]) if digits else 0, key)


def canonical_requirement(line: str) -> str:
    """A Requires-Dist line in one spelling, whichever tool wrote it; unchanged if it is invalid."""
    try:
        return str(Requirement(line))
    except InvalidRequirement:
        return line


def torch_builds(index: Index, since: str, source: str, wanted: Callable[[Release], bool] | None = None) -> list[Build]:
    """Measured builds of torch: variant, code list, dependencies and files.

    Args:
        since: Oldest version.
        source: Key of the records' source.
        wanted: Leaves releases out (some old Windows wheels have no METADATA); None wants all.

    Raises:
        UsageError: A wheel cannot be read.
        IndexUnavailableError: The index fails.
    """
    found = filter(wanted, releases(index.project("torch"), since))
    return _builds(index, found, partial(_torch_facts, source=source))


def triton_builds(
    index: Index, since: str, source: str, wanted: Callable[[Release], bool] | None = None
) -> list[Build]:
    """Builds of triton: one serves every variant, so that its variant is ``any``."""
    found = filter(wanted, releases(index.project("triton"), since))
    return _builds(index, found, lambda release, _: record_of(release, "any", Evidence.MEASURED, source))


def triton_releases(
    index: Index, since: str, source: str, wanted: Callable[[Release], bool] | None = None
) -> list[TritonRelease]:
    """The assemblers in each release of triton, measured in its x86_64 wheel, and how it chooses between them."""
    found = [r for r in releases(index.project("triton"), since) if r.platform.endswith("x86_64")]
    return each(partial(_triton_release, index, source), filter(wanted, found))


def toolkits(
    index: Index, known: Sequence[Toolkit], source: str, wanted: Callable[[Release], bool] | None = None
) -> list[Toolkit]:
    """Toolkits whose PTX version, GPUs and host compiler limits can be measured: NVIDIA publishes wheels of their nvcc.

    Args:
        known: Records so far; fields that no wheel states are taken from these.
        wanted: Leaves releases of nvcc out; None wants the newest of every toolkit.
    """
    newest: dict[str, Release] = {}
    headers: dict[str, Release] = {}
    for found, projects in ((newest, ("cu11", "cu12", "")), (headers, ("crt",))):
        for part in projects:
            name = "nvidia-cuda-crt" if part == "crt" else f"nvidia-cuda-nvcc{'-' + part if part else ''}"
            for release in releases(index.project(name), "11"):
                if release.platform.endswith("x86_64") and not release.version.is_prerelease:
                    found[toolkit_version(release)] = release
    measured = each(
        lambda release: (release, _toolkit_facts(index, release, headers.get(toolkit_version(release)))),
        filter(wanted, newest.values()),
    )
    records = {toolkit.version: toolkit for toolkit in known}
    return [
        _toolkit(records.get(toolkit_version(release)), toolkit_version(release), source, *found)
        for release, found in sorted(measured, key=lambda item: item[0].version)
    ]


def toolkit_version(nvcc: Release) -> str:
    """The toolkit that a release of nvcc belongs to, ``12.8``."""
    return f"{nvcc.version.major}.{nvcc.version.minor}"


def _toolkit(
    old: Toolkit | None, version: str, source: str, assembler: Assembler, limits: HostCompilerLimits
) -> Toolkit:
    known = old or Toolkit(version, None, None, "", (), Evidence.MEASURED, source)
    return replace(
        known,
        ptx_isa=assembler.ptx_isa or known.ptx_isa,
        archs=assembler.archs,
        gcc_max=limits.gcc_max,
        clang_below=limits.clang_below,
        msvc_below=limits.msvc_below,
        evidence=Evidence.MEASURED,
        source=source,
    )


def _builds(index: Index, found: Iterable[Release], facts: Callable[[Release, Index], Build]) -> list[Build]:
    return [build for builds in each(lambda r: with_metadata(index, r, facts(r, index)), found) for build in builds]


def with_metadata(index: Index, release: Release, build: Build) -> list[Build]:
    """One record for all Pythons whose METADATA agree: one in all, unless a release is inconsistent."""
    groups: dict[tuple[tuple[str, ...], str | None], list[str]] = {}
    for python, file in sorted(release.files.items(), key=lambda item: python_order(item[0])):
        meta = index.metadata(file)
        lines = tuple(map(canonical_requirement, meta.requires_dist))
        groups.setdefault((lines, meta.requires_python), []).append(python)
    return [
        replace(
            build,
            pythons=tuple(pythons),
            requires=requires,
            requires_python=requires_python,
            files={p: FileFact(release.files[p].hashes.get("sha256"), release.files[p].size) for p in pythons},
        )
        for (requires, requires_python), pythons in groups.items()
    ]


def _torch_facts(release: Release, index: Index, *, source: str) -> Build:
    file = release.representative
    with closing(index.open(file)) as stream:
        wheel = WheelFile(stream, file.filename)
        measured = measure_package(wheel, "wheel")
        cudnn, nccl = torch_libraries(wheel, measured.requires, release.platform) if measured.cuda else (None, None)
    variant = "cpu" if measured.cuda is None else CudaVersion.parse(measured.cuda).variant
    return replace(
        record_of(release, variant, Evidence.MEASURED, source),
        cuda=measured.cuda,
        code=measured.arch_flags if measured.cuda else (),
        cudnn=cudnn,
        nccl=nccl,
        cxx11_abi=measured.cxx11_abi,
        own_ptxas=measured.assemblers[0].cuda if measured.assemblers else None,
    )


def record_of(release: Release, variant: str, evidence: Evidence, source: str) -> Build:
    """Fields of a build from the listing of a release only; Pythons and dependencies come from its files."""
    return Build(
        package=release.package,
        version=str(release.version),
        variant=variant,
        platform=release.platform,
        pythons=(),
        index="default",
        evidence=evidence,
        source=source,
        released=release.released,
        build_tag=release.build_tag,
    )


def _triton_release(index: Index, source: str, release: Release) -> TritonRelease:
    file = release.representative
    with closing(index.open(file)) as stream:
        wheel = WheelFile(stream, file.filename)
        assemblers = {a.file.rsplit("/", 1)[-1]: a for a in measure_package(wheel, "wheel").assemblers}
        choice = read_choice(wheel, "ptxas-blackwell" in assemblers)
        host_needs = read_host_needs(wheel)
    first = _ptxas("ptxas", assemblers["ptxas"], _TRITON_MIN_CC, "TRITON_PTXAS_PATH", choice.second_from)
    second = (
        (_ptxas("ptxas-blackwell", assemblers["ptxas-blackwell"], choice.second_from, choice.second_override, None),)
        if choice.second_from and choice.second_override
        else ()
    )
    return TritonRelease(
        version=str(release.version),
        ptxas=(first, *second),
        min_cc=_TRITON_MIN_CC,
        evidence=Evidence.MEASURED,
        source=source,
        arch_specific_from=choice.arch_specific_from,
        host_needs=host_needs,
    )


def _ptxas(file: str, found: Assembler, min_cc: str, override: str, max_cc: str | None) -> Ptxas:
    return Ptxas(file, found.cuda, found.ptx_isa or "", found.archs, min_cc, override, max_cc)


def _toolkit_facts(index: Index, nvcc: Release, crt: Release | None) -> tuple[Assembler, HostCompilerLimits]:
    assembler = _measure(index, nvcc.representative).assemblers[0]
    file = (crt or nvcc).representative
    with closing(index.open(file)) as stream:
        wheel = WheelFile(stream, file.filename)
        header = next(path for path in wheel.files() if path.endswith("crt/host_config.h"))
        return assembler, read_limits(read_text(wheel, header))


def _measure(index: Index, file: PublishedFile) -> Measurement:
    with closing(index.open(file)) as stream:
        return measure_package(WheelFile(stream, file.filename), "wheel")


def each(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results in order, a few at a time."""
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(function, items))


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
