"""An nvcc of conda packages brought into an environment of wheels, by real rattler."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.install import sources
from envsolve.install.environment import install
from envsolve.machine.model import Machine
from envsolve.planning.plan import Plan
from envsolve.toolchain.model import Toolchain
from tests.condachannel import PLACEHOLDER, CondaChannel, Package
from tests.install.test_building import TELLING
from tests.install.wheels import make_sdist, make_wheel, plan_of, planned

pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")
pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")

NVCC = Package(
    "cuda-nvcc",
    "12.6.85",
    "h0_0",
    depends=("cuda-version 12.6.*", "cuda-cudart-dev"),
    files={"bin/nvcc": "#!/bin/sh\n", "share/home.txt": PLACEHOLDER},
)
CUDART = Package(
    "cuda-cudart-dev",
    "12.6.77",
    "h0_0",
    depends=("cuda-version 12.6.*", "__glibc >=2.17"),
    files={
        "targets/x86_64-linux/include/cuda.h": "int cuInit(unsigned);\n",
        "targets/x86_64-linux/lib/libcudart.so": "",
    },
)
VERSIONS = tuple(Package("cuda-version", version, "h0_0", subdir="noarch") for version in ("12.6", "12.9"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CondaChannel]:
    with CondaChannel(tmp_path_factory.mktemp("nvcc")) as channel:
        channel.add(NVCC, CUDART, *VERSIONS).write()
        yield channel


def kernels(folder: Path, channel: str, cuda: str = "12.6") -> Plan:
    source = make_sdist(folder, "kernels", "1.0", backend=TELLING)
    specs = (f"{channel}::cuda-nvcc", f"{channel}::cuda-version={cuda}")
    chain = Toolchain(cuda, "gcc 12", "9.0", compiles=("kernels",), nvcc_packages={"conda": specs})
    return plan_of(planned(source), planned(make_wheel(folder, "buildtool", "1.0")), toolchain=chain)


def test_sources_are_compiled_with_an_nvcc_from_conda(served: CondaChannel, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    plan = kernels(tmp_path, served.url)
    assert install(plan, prefix, machine=Machine()).changed
    (packages,) = prefix.glob("lib/python3*/site-packages")
    home = packages / "nvidia" / "cuda-12.6"
    told = json.loads((packages / "told.json").read_text())
    assert told["CUDA_HOME"].endswith("/nvidia/cuda-12.6") and told["library"] == "True"
    assert (home / "include" / "cuda.h").read_text().startswith("int cuInit")
    assert (home / "lib64" / "stubs" / "libcuda.so").is_file()
    assert (home / "share" / "home.txt").read_text() == str(home)
    assert "nvidia/cuda-12.6" in (packages / "envsolve_environment.pth").read_text()
    assert not install(plan, prefix, machine=Machine()).changed


def test_a_channel_without_that_nvcc_changes_nothing(served: CondaChannel, tmp_path: Path) -> None:
    with pytest.raises(IndexUnavailableError, match=r"has no nvcc 12\.9 for this machine"):
        install(kernels(tmp_path, served.url, "12.9"), tmp_path / "env", machine=Machine())
    assert not (tmp_path / "env").exists()


def test_without_rattler_both_ways_to_an_nvcc_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "can_bring", lambda building: False)
    with pytest.raises(UsageError, match=r"requires nvcc 12\.6; this machine has no nvcc") as caught:
        install(kernels(tmp_path, "conda-forge"), tmp_path / "env", machine=Machine())
    assert "pip install 'envsolve[conda]'" in (caught.value.hint or "") and "envsolve plan" in (caught.value.hint or "")
