"""The files of facts that can be measured anew, and how each is: what updating and checking have in common."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envsolve.binaries.files import WheelFile
from envsolve.binaries.tools import read_extension_needs
from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.facts import files as kinds
from envsolve.facts.builds import Build, KnownMetadata, TorchExtension
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.facts.files import Kind
from envsolve.facts.hardware import Toolkit, TritonRelease
from envsolve.facts.maintain.companions import bound_builds, extension_of
from envsolve.facts.maintain.refresh import (
    Index,
    PublishedFile,
    Release,
    canonical_requirement,
    each,
    record_of,
    releases,
    toolkit_version,
    toolkits,
    torch_builds,
    triton_builds,
    triton_releases,
    with_metadata,
)
from envsolve.values import PythonVersion

# Reading the METADATA of the newest wheels of packages: what plans can then do without asking for it.


#: Releases of a package that are read, pre-releases aside: plans take the newest, or one of those before it.
NEWEST = 3
# The Pythons whose wheels are read: those that most packages support, and that most plans are therefore for.
_PYTHONS = 5
_ANY_PYTHON = re.compile(r"py3\d*")
_PLATFORM = re.compile(r"manylinux\w*_(x86_64|aarch64)|win_amd64|any")


def newest_metadata(
    index: Index,
    packages: Mapping[str, Collection[str]],
    source: str,
    wanted: Callable[[Release], bool],
    catalogue: Catalogue,
) -> list[KnownMetadata]:
    """Record the metadata of packages' newest wheels, one record for all wheels of a version that agree.

    Args:
        packages: Normalised names, each with the versions that are read besides; a name that the index lacks has none.
        source: Key of the records' source.
        wanted: Leaves releases out.
        catalogue: The facts, which name the Pythons.

    Raises:
        IndexUnavailableError: The index fails.
    """
    interpreters = {PythonVersion.parse(python).tag for python in catalogue.pythons[:_PYTHONS]}

    def of_package(package: str) -> list[KnownMetadata]:
        found = _releases(package, index.project(package), interpreters)
        final = [release.version for release in found if not release.version.is_prerelease]
        versions = {*sorted(final)[-NEWEST:], *map(Version, packages[package])}
        read = (_read(index, r, source) for r in found if r.version in versions and wanted(r))
        return [record for records in read for record in records]

    return [record for records in each(of_package, sorted(packages)) for record in records]


def _releases(package: str, files: Iterable[PublishedFile], interpreters: Collection[str]) -> list[Release]:
    """One record for all wheels of a version that plans may use, by file name."""
    found: dict[Version, dict[str, PublishedFile]] = {}
    for file in files:
        try:
            _, version, _, tags = parse_wheel_filename(file.filename)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        if file.yanked is None and any(_serves(tag, interpreters) for tag in tags):
            found.setdefault(version, {})[file.filename] = file
    return [Release(package, version, "", "", some, None) for version, some in found.items()]


def _serves(tag: Tag, interpreters: Collection[str]) -> bool:
    """Whether a tag is for one of the interpreters, with the ordinary GIL, on a system that plans are for."""
    python = tag.interpreter in interpreters or _ANY_PYTHON.fullmatch(tag.interpreter)
    ordinary = python and not tag.abi.endswith("t")
    return bool((ordinary or tag.abi == "abi3") and _PLATFORM.fullmatch(tag.platform))


def _read(index: Index, release: Release, source: str) -> list[KnownMetadata]:
    """Files without a hash, and those whose METADATA cannot be read, are left out."""
    said: dict[tuple[tuple[str, ...], str | None, tuple[str, ...]], set[str]] = {}
    for file in release.files.values():
        digest = file.hashes.get("sha256")
        if digest is None:
            continue
        try:
            meta = index.metadata(file)
        except IndexUnavailableError:
            continue
        requires = tuple(map(canonical_requirement, meta.requires_dist))
        said.setdefault((requires, meta.requires_python, meta.provides_extra), set()).add(digest)
    return [
        KnownMetadata(
            release.package,
            str(release.version),
            tuple(sorted(digests)),
            Evidence.MEASURED,
            source,
            requires,
            requires_python,
            extras,
        )
        for (requires, requires_python, extras), digests in said.items()
    ]


def known_order(record: KnownMetadata) -> tuple[str, Version, tuple[str, ...]]:
    """Sort key: package, version, hashes."""
    return record.package, Version(record.version), record.sha256


_log = logging.getLogger("envsolve.facts")
WHEELS = "measured-default-index"
NVCC = "measured-nvcc-wheels"
# What files of packages bound to a CUDA family cite; a file that does not is kept by hand.
BOUND = "measured-cuda-runtime"
# The Windows wheels of 1.7.0 hold no METADATA, so that no installer takes them.
_TORCH_SINCE = "1.7.1"
_LISTED = ("build_tag", "local", "released", "requires", "requires_python")
_OF_TRITON = ("arch_specific_from", "host_needs", "ptxas")
_OF_EXTENSIONS = ("gcc", "gcc_min")
_OF_KNOWN = ("requires", "requires_python", "extras")
_OF_TORCH = (*_LISTED, "code", "cuda", "cxx11_abi", "nccl", "own_ptxas")

Wanted = Callable[[Release], bool]


@dataclass(frozen=True, slots=True)
class Step:
    """One file that measuring renews.

    Attributes:
        file: ``builds/default/torch``.
        source: Key of the source that measured records cite.
        measure: Records of the releases that are wanted.
        is_of: Whether a record is one of a release.
        since: Oldest version that updating looks at; older ones are recorded already.
        tells: Fields that measuring always fills. If it leaves one empty, the build has none.
    """

    file: str
    kind: Kind[Any]
    source: str
    measure: Callable[[Index, Wanted], list[Any]]
    is_of: Callable[[Any, Release], bool]
    since: str = "0"
    tells: tuple[str, ...] = ()

    def lacking(self, known: Sequence[Any]) -> Wanted:
        """A filter for releases that these records do not hold.

        A release of builds is held where every one of its files is, by hash: a Python that was added later, or a
        wheel that was built again, is new.
        """
        oldest = Version(self.since)
        if self.kind is kinds.BUILDS:
            new = unrecorded(known)
        else:
            new = _without(self.holding([record for record in known if record.evidence is Evidence.MEASURED]))
        return lambda release: release.version >= oldest and new(release)

    def holding(self, records: Sequence[Any]) -> Wanted:
        """A filter for the releases of these records."""
        return lambda release: any(self.is_of(record, release) for record in records)


def steps(catalogue: Catalogue) -> list[Step]:
    """Every file of a catalogue that can be measured; files that others depend on come first."""
    bound = [file for file in catalogue.build_files if any(_own_key(b) == BOUND for b in catalogue.file(file))]
    return [
        Step("toolkits", kinds.TOOLKITS, NVCC, partial(_toolkits, catalogue), _is_toolkit),
        Step("tritons", kinds.TRITONS, WHEELS, _triton_releases, _is_version, tells=_OF_TRITON),
        Step("builds/default/triton", kinds.BUILDS, WHEELS, _triton_builds, _is_build, tells=_LISTED),
        Step("builds/default/torch", kinds.BUILDS, WHEELS, _torch_builds, _is_build, _TORCH_SINCE, _OF_TORCH),
        *(
            Step(file, kinds.BUILDS, BOUND, partial(_bound_builds, catalogue, file), _is_build, tells=_LISTED)
            for file in bound
        ),
        Step("torch_extensions", kinds.TORCH_EXTENSIONS, WHEELS, _torch_extensions, _is_version, "1.7", _OF_EXTENSIONS),
        *([_known_step(catalogue)] if catalogue.has(kinds.KNOWN_METADATA) else []),
    ]


def _known_step(catalogue: Catalogue) -> Step:
    """METADATA of the newest releases of the packages in the catalogue."""

    def measure(index: Index, wanted: Wanted) -> list[KnownMetadata]:
        packages = dict.fromkeys((record.package for record in catalogue.known_metadata), ())
        return newest_metadata(index, packages, WHEELS, wanted, catalogue)

    return Step("known_metadata", kinds.KNOWN_METADATA, WHEELS, measure, _is_known, tells=_OF_KNOWN)


def listed(catalogue: Catalogue) -> list[Step]:
    """The other files of builds on the default index."""
    measured = {step.file for step in steps(catalogue)}
    files = [file for file in catalogue.build_files if file.startswith("builds/default/") and file not in measured]
    return [listing(file, catalogue.file(file)) for file in files]


def listing(file: str, known: Sequence[Build]) -> Step:
    """Record fields of builds from the index and METADATA, and from the main libraries of those that were measured.

    Measuring gives more: the CUDA family and the torch that a build is bound to are missing here.
    """
    read = [build for build in known if build.code and build.known("code").evidence is Evidence.MEASURED]
    measure = partial(_listed_builds, file, lambda release: any(_is_build(build, release) for build in read))
    return Step(file, kinds.BUILDS, "", measure, _is_build, tells=_LISTED)


def unrecorded(known: Sequence[Build]) -> Wanted:
    """A filter for releases with a file that none of these builds holds."""
    hashes = {fact.sha256 for build in known for fact in build.files.values()}
    return lambda release: any(file.hashes.get("sha256") not in hashes for file in release.files.values())


def _torch_builds(index: Index, wanted: Wanted) -> list[Build]:
    return torch_builds(index, "0", WHEELS, wanted)


def _triton_builds(index: Index, wanted: Wanted) -> list[Build]:
    return triton_builds(index, "2.0", WHEELS, wanted)


def _triton_releases(index: Index, wanted: Wanted) -> list[TritonRelease]:
    return triton_releases(index, "2.0", WHEELS, wanted)


def _torch_extensions(index: Index, wanted: Wanted) -> list[TorchExtension]:
    found = [r for r in releases(index.project("torch"), "0") if r.platform.endswith("x86_64")]
    return [record for record in each(partial(_torch_extension, index), filter(wanted, found)) if record]


def _torch_extension(index: Index, release: Release) -> TorchExtension | None:
    """None if a new torch uses a form that is not understood yet; the rest of it can still be used."""
    file = release.representative
    try:
        with closing(index.open(file)) as stream:
            needs = read_extension_needs(WheelFile(stream, file.filename))
    except UsageError as error:
        _log.warning("what compiling against torch %s takes is not recorded: %s", release.version, error)
        return None
    return TorchExtension(
        version=str(release.version),
        cxx_standard=needs.cxx_standard,
        archs=needs.archs,
        evidence=Evidence.MEASURED,
        source=WHEELS,
        gcc=needs.gcc,
        gcc_min=needs.gcc_min,
        gcc_below=needs.gcc_below,
    )


def _toolkits(catalogue: Catalogue, index: Index, wanted: Wanted) -> list[Toolkit]:
    return toolkits(index, catalogue.toolkits, NVCC, wanted)


def _bound_builds(catalogue: Catalogue, file: str, index: Index, wanted: Wanted) -> list[Build]:
    since = min((b.version for b in catalogue.file(file) if _own_key(b) == BOUND), key=Version)
    torches = catalogue.builds("torch")
    return bound_builds(index, file.rsplit("/", 1)[-1], since, BOUND, torches, wanted, catalogue.toolkits)


def _listed_builds(file: str, coded: Wanted, index: Index, wanted: Wanted) -> list[Build]:
    def of(release: Release) -> list[Build]:
        builds = with_metadata(index, release, record_of(release, "", Evidence.PUBLISHED, ""))
        return _with_code(index, release, builds) if coded(release) else builds

    found = filter(wanted, releases(index.project(file.rsplit("/", 1)[-1]), "0"))
    return [build for builds in each(of, found) for build in builds]


def _with_code(index: Index, release: Release, builds: Sequence[Build]) -> list[Build]:
    file = release.representative
    with closing(index.open(file)) as stream:
        extension = extension_of(release.package, WheelFile(stream, file.filename))
    if extension is None:
        return list(builds)
    return [replace(build, code=extension.code, cxx11_abi=extension.cxx11_abi) for build in builds]


def _without(wanted: Wanted) -> Wanted:
    return lambda release: not wanted(release)


def _own_key(record: Build) -> str:
    """The source of a record, as its own file names it."""
    return record.source.rsplit(":", 1)[-1]


def _is_build(record: Build, release: Release) -> bool:
    return (record.version, record.platform) == (str(release.version), release.platform)


def _is_version(record: TritonRelease | TorchExtension, release: Release) -> bool:
    return record.version == str(release.version)


def _is_known(record: KnownMetadata, release: Release) -> bool:
    return (record.package, record.version) == (release.package, str(release.version))


def _is_toolkit(record: Toolkit, release: Release) -> bool:
    return record.version == toolkit_version(release)
