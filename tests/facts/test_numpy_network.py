"""Records of what was compiled against NumPy 1, against the published wheels: the last such release, and the next."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from envsolve._default_index import DEFAULT_INDEX
from envsolve.environment.read import numpy_major
from envsolve.facts.catalogue import Catalogue

pytestmark = pytest.mark.network

SMALL = [("numexpr", "2.9.0", "2.10.0"), ("pycocotools", "2.0.7", "2.0.8"), ("h5py", "3.10.0", "3.11.0")]


@pytest.mark.parametrize(("package", "last", "first"), SMALL, ids=[case[0] for case in SMALL])
def test_the_first_release_for_numpy_2_is_known(package: str, last: str, first: str, tmp_path: Path) -> None:
    (record,) = (one for one in Catalogue().compiled_against if one.package == package)
    for version, major in ((last, 1), (first, 2)):
        assert SpecifierSet(record.versions).contains(version) is (major == 1)
        assert _majors(package, version, tmp_path / version) == {major}


def _majors(package: str, version: str, folder: Path) -> set[int]:
    """The NumPy of all libraries of a wheel that use one."""
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    place = ["--python-version", "3.11", "--platform", "manylinux2014_x86_64", "--index-url", DEFAULT_INDEX]
    subprocess.run([*download, *place, "-d", str(folder), f"{package}=={version}"], check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return {major for path in folder.rglob("*.so*") if (major := numpy_major(path))}
