"""Libraries that a process has loaded, told from those that its environment provides."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from envsolve.verify.scripts import BUILT_IN
from tests.environment.test_installed import put

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
SHARED = BUILT_IN.with_name("shared")
FILE = "nvidia/cu13/lib/libcufft.so.12"
PROGRAM = """
import ctypes, sys
sys.path.append(sys.argv[1])
from check_libraries import expect_own
ctypes.CDLL(sys.argv[2])
print(expect_own("libcufft", "libcurand"))
"""


@pytest.fixture(scope="module")
def library() -> Path:
    """Any shared library; only its name and place count."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    folder = Path(sysconfig.get_path("stdlib"), "lib-dynload")
    return next(path for path in sorted(folder.glob(f"*{suffix}")))


@pytest.fixture
def site(tmp_path: Path, library: Path) -> Path:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    site = next((tmp_path / "env").glob("lib/python3*/site-packages"))
    put(site, "nvidia-cufft", {FILE: library.read_bytes()})
    return site


def loading(site: Path, path: Path, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    python = site.parents[2] / "bin" / "python"
    return subprocess.run([python, "-c", program, str(SHARED), str(path)], capture_output=True, text=True)


def elsewhere(tmp_path: Path, library: Path, name: str = "libcufft.so.12") -> Path:
    (tmp_path / "toolkit").mkdir()
    return Path(shutil.copy(library, tmp_path / "toolkit" / name))


def test_the_environments_own_library_is_named(site: Path) -> None:
    assert loading(site, site / FILE).stdout == "libcufft.so.12\n"


def test_a_link_to_the_environments_own_library(site: Path, tmp_path: Path) -> None:
    (tmp_path / "libcufft.so").symlink_to(site / FILE)
    assert loading(site, tmp_path / "libcufft.so").stdout == "libcufft.so.12\n"


def test_one_of_the_system_instead_of_the_environments_own(site: Path, tmp_path: Path, library: Path) -> None:
    path = elsewhere(tmp_path, library)
    error = loading(site, path).stderr
    assert f"{path} was loaded from outside this environment instead of {site / FILE}" in error


def test_one_that_is_loaded_before_the_environments_own(site: Path, tmp_path: Path, library: Path) -> None:
    path = elsewhere(tmp_path, library)
    program = PROGRAM.replace("print(", f"ctypes.CDLL({str(site / FILE)!r})\nprint(")
    error = loading(site, path, program).stderr
    assert f"{path} was loaded from outside this environment instead of {site / FILE}" in error


def test_one_of_the_system_because_that_of_the_package_is_gone(site: Path, tmp_path: Path, library: Path) -> None:
    path = elsewhere(tmp_path, library)
    (site / FILE).unlink()
    error = loading(site, path).stderr
    assert f"{path} was loaded from outside this environment instead of {site / FILE} of nvidia-cufft 1.0" in error


def test_one_of_the_system_that_no_package_provides(site: Path, tmp_path: Path, library: Path) -> None:
    assert loading(site, elsewhere(tmp_path, library, "libcurand.so.10")).stdout == "libcurand.so.10\n"
