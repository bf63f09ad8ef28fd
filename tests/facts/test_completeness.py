"""No release that the default package index has may be missing in the catalogue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envsolve._default_index import DEFAULT_INDEX
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.files import data_folder
from envsolve.packages.client import IndexClient
from envsolve.packages.settings import IndexSettings

pytestmark = pytest.mark.network

CATALOGUE = Catalogue(data_folder())
# The companions' first releases are those for torch 1.7.
SINCE = {"torch": "1.7", "triton": "2.0", "torchvision": "0.8", "torchaudio": "0.7"}
# Their .dist-info folder has another name, so that they hold no METADATA for an installer: torch 1.7.0 on Windows.
UNINSTALLABLE = {f"torch-1.7.0-{tags}-win_amd64.whl" for tags in ("cp36-cp36m", "cp37-cp37m", "cp38-cp38m")}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexClient]:
    with IndexClient(IndexSettings(default=DEFAULT_INDEX), cache_dir=tmp_path_factory.mktemp("cache")) as client:
        yield client


def is_wanted(filename: str, package: str) -> bool:
    """Whether it is a wheel of a recent enough version for CPython on Linux or Windows."""
    try:
        name, version, _, tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):
        return False
    return (
        canonicalize_name(name) == package
        and version >= Version(SINCE[package])
        and any(t.interpreter.startswith(("cp", "py")) and t.platform.startswith(("manylinux", "win")) for t in tags)
    )


@pytest.mark.parametrize("package", SINCE)
def test_every_wheel_is_recorded(index: IndexClient, package: str) -> None:
    builds = [build for build in CATALOGUE.builds(package) if build.index == "default"]
    known = {build.filename(python): fact.sha256 for build in builds for python, fact in build.files.items()}
    newest = {(build.version, build.platform): int(build.build_tag or -1) for build in builds}
    listed = {f.filename: f for f in index.project(package) if f.yanked is None and is_wanted(f.filename, package)}
    lacking = sorted(
        name
        for name, file in listed.items()
        if known.get(name) != file.hashes.get("sha256") and name not in UNINSTALLABLE and not replaced(name, newest)
    )
    assert not lacking
    assert set(known) <= {file.filename for file in index.project(package)}


@pytest.mark.parametrize("file", [file for file in CATALOGUE.build_files if file.startswith("builds/default/")])
def test_every_file_that_is_recorded_is_offered_as_recorded(index: IndexClient, file: str) -> None:
    """Files that were withdrawn are none that an installer chooses."""
    listed = {f.hashes["sha256"]: f.size for f in index.project(file.rsplit("/", 1)[-1]) if f.yanked is None}
    facts = {b.filename(python): fact for b in CATALOGUE.file(file) for python, fact in b.files.items()}
    assert facts
    gone = [name for name, fact in facts.items() if fact.sha256 not in listed]
    assert not gone
    assert not [n for n, fact in facts.items() if fact.sha256 and fact.size not in (None, listed[fact.sha256])]


def replaced(filename: str, newest: dict[tuple[str, str], int]) -> bool:
    """Whether a wheel of a higher build number stands for it, as installers have it."""
    _, version, build, _ = parse_wheel_filename(filename)
    platform = filename.removesuffix(".whl").rsplit("-", 1)[1]
    return (build[0] if build else -1) < newest.get((str(version), platform), -1)
