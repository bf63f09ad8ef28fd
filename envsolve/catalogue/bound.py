"""Packages whose one wheel on the default index is bound to a CUDA family: vllm, torch-tensorrt and their like.

They are published without a flavour in their names, yet their libraries need the runtime of one CUDA major, and a torch
of the same major beside them. What tells the major is the package's own name (``-cu12``), else its libraries, else the
names of what it depends on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.catalogue.measure.artefact import WheelFile
from envsolve.catalogue.measure.runtime import cuda_major
from envsolve.catalogue.model import Build, Evidence
from envsolve.catalogue.refresh import Index, Release, each, record_of, releases, with_metadata

_MAJOR = re.compile(r"-cu(\d\d)$")


def bound_builds(
    index: Index,
    package: str,
    since: str,
    source: str,
    torches: Sequence[Build],
    wanted: Callable[[Release], bool] | None = None,
) -> list[Build]:
    """Builds of one such package; pre-releases, and wheels that are not bound or do not name their torch, left out.

    ``variant`` and ``cuda`` of a record are exact in the major. The minor, which decides nothing for such a package, is
    that of the newest torch on the default index that the wheel accepts.

    Args:
        package: Normalised name.
        since: Oldest version.
        source: Key of the records' source.
        torches: Known builds of torch.
        wanted: Leaves releases out; None wants all.

    Raises:
        UsageError: A wheel cannot be read.
        IndexUnavailableError: The index fails.
    """
    found = [r for r in releases(index.project(package), since) if not r.version.is_prerelease]
    return [b for builds in each(lambda r: _bound(index, r, source, torches), filter(wanted, found)) for b in builds]


def torch_of(requires: Sequence[str]) -> str | None:
    """The one specifier on torch among Requires-Dist lines, extras left aside; None where there is none, or several."""
    found = {str(r.specifier) for r in _required(requires) if r.name == "torch" and r.specifier}
    return found.pop() if len(found) == 1 else None


def cuda_of(major: int, torch: str | None, torches: Sequence[Build]) -> str:
    """The CUDA version of the newest default-index torch of a major that a specifier takes, else ``MAJOR.0``."""
    specifier = SpecifierSet(torch or "")
    fitting = [
        (Version(b.version), b.cuda)
        for b in torches
        if b.index == "default" and b.cuda and b.cuda.split(".")[0] == str(major) and specifier.contains(b.version)
    ]
    return max(fitting)[1] if torch and fitting else f"{major}.0"


def _bound(index: Index, release: Release, source: str, torches: Sequence[Build]) -> list[Build]:
    blank = record_of(release, "", Evidence.PUBLISHED, source)
    builds = [replace(b, torch=torch_of(b.requires or ())) for b in with_metadata(index, release, blank)]
    named = _named((release.package,))
    if named is None and any(b.torch is None for b in builds):
        return []
    measured = _measured_major(index, release) if named is None else None
    major = named or measured or _named(r.name for b in builds for r in _required(b.requires or ()))
    if major is None:
        return []
    evidence = Evidence.MEASURED if measured else Evidence.PUBLISHED
    cudas = [cuda_of(major, b.torch, torches) for b in builds]
    return [
        replace(build, variant="cu" + cuda.replace(".", ""), cuda=cuda, evidence=evidence)
        for build, cuda in zip(builds, cudas, strict=True)
    ]


def _named(names: Iterable[str]) -> int | None:
    """The CUDA major at the end of the names; None where none has one, or they disagree."""
    found = {int(match[1]) for match in map(_MAJOR.search, names) if match}
    return found.pop() if len(found) == 1 else None


def _measured_major(index: Index, release: Release) -> int | None:
    file = release.representative
    with closing(index.open(file)) as stream:
        return cuda_major(WheelFile(stream, file.filename))


def _required(lines: Iterable[str]) -> Iterator[Requirement]:
    """The requirements of a bare installation, those of other platforms included."""
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or "extra" not in str(requirement.marker):
            yield requirement
