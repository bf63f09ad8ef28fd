"""Packages whose wheels on the default index say too little of themselves: vllm, bitsandbytes, CuPy and their like.

Most are published without a flavour in their names, yet their libraries need the runtime of one CUDA major, and a torch
of the same major beside them. What tells the major is the package's own name (``-cu12``), else its libraries, else the
names of what it depends on. Some say it in files of their own (:mod:`envsolve.catalogue.companions`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.catalogue.companions import READERS
from envsolve.catalogue.extensions import compiled_with, extension_of, with_extension
from envsolve.catalogue.measure.artefact import WheelFile
from envsolve.catalogue.measure.runtime import cuda_major
from envsolve.catalogue.model import Build, Evidence, Toolkit
from envsolve.catalogue.refresh import Index, Release, each, record_of, releases, with_metadata

# ``vllm-cu12``, ``jax-cuda12-plugin``, ``cupy-cuda12x`` name a major, ``cupy-cuda102`` a toolkit.
_NAMED = re.compile(r"-cu(?:da)?(\d\d)(\d)?x?(?=-|$)")


def bound_builds(
    index: Index,
    package: str,
    since: str,
    source: str,
    torches: Sequence[Build],
    wanted: Callable[[Release], bool] | None = None,
    toolkits: Sequence[Toolkit] = (),
) -> list[Build]:
    """Builds of one such package; pre-releases, and wheels that are not bound or do not name their torch, left out.

    ``variant`` and ``cuda`` of a record are exact in the major. The minor is one that the kernels show to be possible;
    where several are, it is that of the newest torch on the default index that the wheel accepts.

    Args:
        package: Normalised name.
        since: Oldest version.
        source: Key of the records' source.
        torches: Known builds of torch.
        wanted: Leaves releases out; None wants all.
        toolkits: Known toolkits.

    Raises:
        UsageError: A wheel cannot be read, or says what it was built for in a way that is not known.
        IndexUnavailableError: The index fails.
    """
    found = [r for r in releases(index.project(package), since) if not r.version.is_prerelease]
    measured = each(lambda r: _measured(index, r, source, torches, toolkits), filter(wanted, found))
    return [build for builds in measured for build in builds]


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


def _measured(
    index: Index, release: Release, source: str, torches: Sequence[Build], toolkits: Sequence[Toolkit]
) -> list[Build]:
    blank = record_of(release, "", Evidence.MEASURED, source)
    builds = [replace(b, torch=torch_of(b.requires or ())) for b in with_metadata(index, release, blank)]
    file = release.representative
    with closing(index.open(file)) as stream:
        wheel = WheelFile(stream, file.filename)
        if release.package in READERS:
            return READERS[release.package](builds, wheel, toolkits)
        return _bound(builds, wheel, torches, toolkits)


def _bound(
    builds: Sequence[Build], wheel: WheelFile, torches: Sequence[Build], toolkits: Sequence[Toolkit]
) -> list[Build]:
    named = _named((builds[0].package,))
    extension = extension_of(builds[0].package, wheel)
    of_main = extension.cuda_major if extension else None
    if named and of_main not in (None, named[0]):
        named = None  # the library of transformer-engine-cu12 2.6.0 needs CUDA 13
    alone = named is not None or (extension is not None and not extension.needs_torch)
    if not alone and any(b.torch is None for b in builds):
        return []
    measured = (of_main or cuda_major(wheel)) if named is None else None
    of_dependencies = _named(r.name for b in builds for r in _required(b.requires or ()))
    major = named[0] if named else measured or (of_dependencies[0] if of_dependencies else None)
    if major is None:
        return []
    evidence = Evidence.MEASURED if measured or extension else Evidence.PUBLISHED
    found = []
    for build in builds:
        cuda = ".".join(map(str, named)) if named and len(named) > 1 else cuda_of(major, build.torch, torches)
        cuda = compiled_with(cuda, extension, toolkits) if extension else cuda
        bound = replace(build, variant="cu" + cuda.replace(".", ""), cuda=cuda, evidence=evidence)
        found.append(with_extension(bound, extension))
    return found


def _named(names: Iterable[str]) -> tuple[int, ...] | None:
    """The CUDA major, and the minor where there is one, in the names; None where none has any, or they disagree."""
    found = {tuple(int(n) for n in match.groups() if n) for match in map(_NAMED.search, names) if match}
    return found.pop() if len(found) == 1 else None


def _required(lines: Iterable[str]) -> Iterator[Requirement]:
    """The requirements of a bare installation, those of other platforms included."""
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or "extra" not in str(requirement.marker):
            yield requirement
