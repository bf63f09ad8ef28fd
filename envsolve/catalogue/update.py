"""Bringing the measured files of ``index_data/`` up to date: what is recorded stays, what is new is measured.

A release is new when it has a file whose hash no record holds: a new version, a Python that was added later, a rebuilt
wheel with a higher build tag. Its records replace those of the same version and platform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from envsolve.catalogue.bound import bound_builds
from envsolve.catalogue.load import Catalogue, read_file
from envsolve.catalogue.model import Build, Source, Toolkit, TritonRelease
from envsolve.catalogue.refresh import Index, Release, toolkits, torch_builds, triton_builds, triton_releases
from envsolve.catalogue.write import build_order, dump_catalogue_file, group_requires

_WHEELS = "measured-default-index"
_NVCC = "measured-nvcc-wheels"
# What files of packages bound to a CUDA family cite; a file that does not is kept by hand.
_BOUND = "measured-cuda-runtime"
# Older releases are recorded already, and their Windows wheels are partly malformed.
_SINCE = {"torch": "2.4", "triton": "2.0"}


def update(index: Index, folder: Path, date: str) -> dict[Path, tuple[str, ...]]:
    """Measure what the index has and the catalogue has not, and write the files that change.

    Args:
        index: The default package index.
        folder: ``index_data/`` of a checkout.
        date: Today, ISO: the date of the sources of the files written.

    Returns:
        Files written, with what was added to each (``torch 2.15.0 manylinux_2_28_x86_64``).

    Raises:
        UsageError: A wheel cannot be read, or a release works in a way that measuring does not know.
        IndexUnavailableError: The index fails.
    """
    default = folder / "builds" / "default"
    steps = [
        (default / "torch.json", _update_torch),
        (default / "triton.json", _update_triton),
        (folder / "tritons.json", _update_tritons),
        (folder / "toolkits.json", _update_toolkits),
    ]
    steps += [(path, _update_bound) for path in sorted(default.iterdir()) if _BOUND in read_file(path, Build).sources]
    return {path: added for path, step in steps if (added := step(index, path, date))}


def unrecorded(known: Iterable[Build]) -> Callable[[Release], bool]:
    """A filter for releases with a file that none of these builds holds."""
    hashes = {fact.sha256 for build in known for fact in build.files.values()}
    return lambda release: any(file.hashes.get("sha256") not in hashes for file in release.files.values())


def merged(known: Iterable[Build], new: Sequence[Build]) -> list[Build]:
    """Both, in order; the new ones replace all of the same version and platform."""
    replaced = {(build.version, build.platform) for build in new}
    kept = [build for build in known if (build.version, build.platform) not in replaced]
    return sorted([*kept, *new], key=build_order)


def _update_torch(index: Index, path: Path, date: str) -> tuple[str, ...]:
    return _update_builds(path, date, lambda wanted: torch_builds(index, _SINCE["torch"], _WHEELS, wanted))


def _update_triton(index: Index, path: Path, date: str) -> tuple[str, ...]:
    return _update_builds(path, date, lambda wanted: triton_builds(index, _SINCE["triton"], _WHEELS, wanted))


def _update_bound(index: Index, path: Path, date: str) -> tuple[str, ...]:
    torches = Catalogue(path.parents[2]).builds("torch")
    measured = [Version(build.version) for build in read_file(path, Build).records if build.source == _BOUND]
    since = str(min(measured))
    return _update_builds(
        path, date, lambda wanted: bound_builds(index, path.stem, since, _BOUND, torches, wanted), _BOUND
    )


def _update_builds(
    path: Path, date: str, measure: Callable[[Callable[[Release], bool]], list[Build]], source: str = _WHEELS
) -> tuple[str, ...]:
    file = read_file(path, Build)
    known = [
        replace(build, requires=tuple(line for group in build.requires or () for line in file.requires[group]))
        for build in file.records
    ]
    new = measure(unrecorded(known))
    if new:
        records, requires = group_requires(merged(known, new))
        path.write_text(dump_catalogue_file(_dated(file.sources, source, date), records, requires), "utf-8")
    return tuple(f"{build.package} {build.version} {build.platform}" for build in new)


def _update_tritons(index: Index, path: Path, date: str) -> tuple[str, ...]:
    file = read_file(path, TritonRelease)
    new = triton_releases(index, _SINCE["triton"], _WHEELS, {release.version for release in file.records})
    if new:
        records = sorted([*file.records, *new], key=lambda release: Version(release.version))
        path.write_text(dump_catalogue_file(_dated(file.sources, _WHEELS, date), records), "utf-8")
    return tuple(f"triton {release.version}" for release in new)


def _update_toolkits(index: Index, path: Path, date: str) -> tuple[str, ...]:
    file = read_file(path, Toolkit)
    records = toolkits(index, file.records, _NVCC)
    added = tuple(f"CUDA {toolkit.version}" for toolkit in records if toolkit not in file.records)
    if added:
        path.write_text(dump_catalogue_file(_dated(file.sources, _NVCC, date), records), "utf-8")
    return added


def _dated(sources: dict[str, Source], key: str, date: str) -> dict[str, Source]:
    return {**sources, key: replace(sources[key], date=date)}
