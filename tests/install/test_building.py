"""CUDA sources compiled in the environment that they are for: what the build is told, and what is refused before it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.formats import render
from envsolve.install import building, relocate, sources
from envsolve.install.environment import install
from envsolve.install.errors import InstallError
from envsolve.machine.model import HostCompiler, Machine, Toolkit
from envsolve.planning.lock import Assumptions, Building
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage
from envsolve.toolchain.model import SITE_PACKAGES, Toolchain
from tests import distributions
from tests.install.conftest import ONE
from tests.install.wheels import failing_backend, make_sdist, make_wheel, plan_of, planned

needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
HOME = f"{SITE_PACKAGES}/nvidia/cu13"
CHAIN = Toolchain(
    "13.0",
    "gcc 13",
    "9.0",
    compiles=("kernels",),
    nvcc_from="pip",
    CUDA_HOME=HOME,
    gcc_max=90,
    environment={"TORCH_CUDA_ARCH_LIST": "9.0", "FORCE_CUDA": "1"},
)
TELLING = (
    distributions.BACKEND
    + b"""
copy_wheel = build_wheel

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import buildtool, json, pathlib, zipfile
    library = pathlib.Path(os.environ["CUDA_HOME"], "lib64", "libcudart.so").exists()
    name = copy_wheel(wheel_directory)
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "a") as wheel:
        wheel.writestr("told.json", json.dumps({**os.environ, "library": str(library)}))
    return name
"""
)


def nvcc_wheel(folder: Path) -> PlannedPackage:
    """What looks like NVIDIA's packages of a compiler."""
    files = {
        "nvidia/cu13/bin/nvcc": b"#!/bin/sh\n",
        "nvidia/cu13/lib/libcudart.so.13": b"",
        "nvidia/cu13/include/cuda.h": b"CUresult CUDAAPI cuInit(unsigned int);\n#define cuCtxCreate cuCtxCreate_v4\n",
    }
    path = folder / distributions.wheel_filename("nvidia_cuda_nvcc", "13.0.88")
    path.write_bytes(distributions.make_wheel("nvidia_cuda_nvcc", "13.0.88", files=files))
    return planned(path)


@pytest.fixture
def kernels(tmp_path: Path) -> Plan:
    source = make_sdist(tmp_path, "kernels", "1.0", backend=TELLING)
    tool = make_wheel(tmp_path, "buildtool", "1.0")
    return plan_of(planned(source), planned(tool), nvcc_wheel(tmp_path), toolchain=CHAIN)


def told(prefix: Path) -> dict[str, str]:
    (path,) = prefix.glob("lib/python3*/site-packages/told.json")
    found: dict[str, str] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("manager", ONE)
@needs_gcc
def test_sources_are_compiled_last_with_the_toolchain_of_the_plan(
    tmp_path: Path, kernels: Plan, manager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "3")
    prefix, lock = tmp_path / "env", tmp_path / "pylock.toml"
    lock.write_text(render(kernels, "pylock"))
    # A lock builds as its plan does.
    assert install(lock if manager == "uv" else kernels, prefix, manager=manager).changed
    seen = told(prefix)
    assert seen["CUDA_HOME"].endswith("/nvidia/cu13") and seen["CUDACXX"] == f"{seen['CUDA_HOME']}/bin/nvcc"
    folders = seen["PATH"].split(os.pathsep)
    assert folders.index(f"{seen['CUDA_HOME']}/bin") < folders.index("/usr/bin")
    assert (seen["TORCH_CUDA_ARCH_LIST"], seen["FORCE_CUDA"], seen["MAX_JOBS"]) == ("9.0", "1", "3")
    assert seen["library"] == "True"
    assert seen["NVCC_CCBIN"] == seen["CXX"] and Path(seen["CC"]).exists()
    assert "$ORIGIN/../nvidia/cu13/lib" in seen["LDFLAGS"]


@pytest.mark.slow
@needs_gcc
def test_the_same_sources_for_other_gpus_are_compiled_again(tmp_path: Path, kernels: Plan) -> None:
    prefix = tmp_path / "env"
    assert install(kernels, prefix, manager="uv").changed
    assert not install(kernels, prefix, manager="uv").changed
    chain = replace(CHAIN, environment={"TORCH_CUDA_ARCH_LIST": "8.6"})
    assert install(replace(kernels, toolchain=chain), prefix, manager="uv").changed
    assert told(prefix)["TORCH_CUDA_ARCH_LIST"] == "8.6"


@needs_gcc
def test_the_log_of_a_build_that_fails_is_kept(tmp_path: Path, kernels: Plan) -> None:
    words = "fatal error: cublas_v2.h: No such file or directory"
    source = make_sdist(tmp_path, "kernels", "1.0", backend=failing_backend(words))
    plan = replace(kernels, packages=(planned(source), *kernels.packages[1:]))
    with pytest.raises(InstallError) as caught:
        install(plan, tmp_path / "env", manager="uv")
    log = tmp_path / "env.build.log"
    assert words in log.read_text()
    assert f"envsolve diagnose --log {log}" in (caught.value.hint or "")
    assert not (tmp_path / "env").exists()


GONE = PlannedPackage("kernels", "1.0", None, None, "kernels-1.0.tar.gz", "file:///gone", {"sha256": "0" * 64}, "sdist")


@pytest.mark.parametrize(
    ("compilers", "says"),
    [
        ((HostCompiler("gcc", "99.1.0", "/usr/bin/gcc"),), "requires gcc 11 to 15; this machine has gcc 99.1.0"),
        ((HostCompiler("gcc", "9.4.0", "/usr/bin/g++-9"),), "requires gcc 11 to 15; this machine has gcc 9.4.0"),
        ((HostCompiler("clang", "14.0", "/usr/bin/clang"),), "this machine has clang 14.0"),
        ((), "g++ is not installed on this machine"),
    ],
)
def test_a_host_compiler_out_of_the_limits_is_refused_before_anything_is_fetched(
    tmp_path: Path, compilers: tuple[HostCompiler, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    plan = plan_of(GONE, toolchain=replace(CHAIN, gcc_min=11, gcc_max=15))
    with pytest.raises(UsageError) as caught:
        install(plan, tmp_path / "env", machine=Machine(host_compilers=compilers))
    assert says in caught.value.message
    assert "g++-15" in (caught.value.hint or "")
    assert not (tmp_path / "env").exists()


def test_the_compiler_within_the_limits_is_taken(tmp_path: Path) -> None:
    for name in ("gcc", "g++", "gcc-13", "g++-13", "gcc-12", "g++-12", "gcc-16", "g++-16"):
        (tmp_path / name).touch()
    found = tuple(
        HostCompiler("gcc", f"{major}.1", str(tmp_path / name))
        for name, major in (("gcc", 16), ("g++", 16), ("gcc-12", 12), ("g++-13", 13))
    )
    host = building.host_compiler(Building(("k",), gcc_max=15), Machine(host_compilers=found), {})
    assert host == building.Host(str(tmp_path / "gcc-13"), str(tmp_path / "g++-13"))
    host = building.host_compiler(Building(("k",), gcc_max=16), Machine(host_compilers=found), {})
    assert host.cxx == str(tmp_path / "g++")


@pytest.mark.parametrize(
    ("toolkits", "home"),
    [
        ((Toolkit("12.8", "/usr/local/cuda", True), Toolkit("12.6.3", "/opt/cuda", True)), "/opt/cuda"),
        ((Toolkit("12.6", "/a", True), Toolkit("12.6", "/planned", True)), "/planned"),
        ((Toolkit("12.6", "/a", False), Toolkit("12.8", "/b", True)), None),
        ((), None),
    ],
)
def test_the_toolkit_of_the_machine(toolkits: tuple[Toolkit, ...], home: str | None) -> None:
    stated = Building(("kernels",), nvcc="12.6", nvcc_from="machine", cuda_home="/planned")
    machine = Machine(toolkits=toolkits)
    assert building.own_toolkit(stated, machine) == (Path(home) if home else None)
    if home is None:
        said = building.no_toolkit(stated, machine, "this way")
        assert re.search(r"requires nvcc 12\.6; this machine has (no nvcc|nvcc 12\.8 in /b)", said.message)
        assert (said.hint or "").startswith("this way; or: `envsolve plan` with")


@needs_gcc
def test_a_toolkit_of_packages_gets_what_linkers_look_for(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "include").mkdir()
    for name in ("libcudart.so.13", "libnvrtc-builtins.so.13.2", "libcudadevrt.a"):
        (tmp_path / "lib" / name).touch()
    (tmp_path / "include" / "cuda.h").write_text("CUresult CUDAAPI cuInit(unsigned int Flags);\n")
    for _ in range(2):
        sources.complete(tmp_path, "gcc")
    assert (tmp_path / "lib64" / "libcudart.so").readlink() == Path("libcudart.so.13")
    assert (tmp_path / "lib" / "libnvrtc-builtins.so").is_symlink()
    assert ctypes.CDLL(str(tmp_path / "lib64" / "stubs" / "libcuda.so")).cuInit


def test_the_folder_of_a_variable_goes_before_those_of_the_path_once() -> None:
    line = relocate.line({"PATH": f"{HOME}/bin:$PATH"}, "lib/python3.12/site-packages")
    script = f"{line}{line}print(os.environ['PATH'])"
    ran = subprocess.run(
        [sys.executable, "-c", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == f"{sys.prefix}/lib/python3.12/site-packages/nvidia/cu13/bin:/usr/bin:/bin"


def test_headers_of_the_wheels_stand_in_for_those_that_a_toolkit_lacks(tmp_path: Path) -> None:
    (tmp_path / "nvidia" / "cublas" / "include").mkdir(parents=True)
    home = Path("/usr/local/cuda-12.8")
    given = building.variables(Building(), home, building.Host("cc", "c++"), tmp_path / "e", tmp_path, {})
    assert given["CPATH"] == f"/usr/local/cuda-12.8/include:{tmp_path}/nvidia/cublas/include"
    assert given["LDFLAGS"] == "-Wl,-rpath,/usr/local/cuda-12.8/lib64"
    assert int(given["MAX_JOBS"]) >= 1


def test_what_a_lock_says_of_building_is_read_back() -> None:
    stated = Building(("kernels",), "13.0", "pip", HOME, None, 15, {"TORCH_CUDA_ARCH_LIST": "9.0"})
    assert Assumptions.from_table(Assumptions(building=stated).to_table()) == Assumptions(building=stated)
    with pytest.raises(UsageError, match=r"building\.nvcc is no CUDA version"):
        Assumptions.from_table({"building": {"nvcc": "latest"}})
