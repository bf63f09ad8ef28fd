"""CUDA sources planned, locked and compiled for real, with packages of the default index as the CUDA toolkit.

No CUDA of the machine is on the PATH, and no GPU is asked for anything. Minutes of compiling, and gigabytes for torch.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import envsolve
from envsolve.errors import UsageError
from envsolve.install.environment import install
from envsolve.machine.model import HostCompiler, Machine
from tests.network.tools import Tools, program
from tests.packages.repositories import repository

pytestmark = [pytest.mark.network, pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")]

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SYSTEM = f"driver 580.95, python {PYTHON}, linux-x86_64, glibc 2.36"
CUBIN = """
import pycuda.compiler as compiler, sys
source = "__global__ void twice(float *x) { x[threadIdx.x] *= 2; }"
sys.stdout.buffer.write(compiler.compile(source, arch="sm_90", cache_dir=False))
"""
SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
setup(
    name="tiny-kernels", version="1.0", install_requires=["torch"],
    ext_modules=[CUDAExtension("tiny_kernels", ["tiny.cu"])], cmdclass={"build_ext": BuildExtension},
)
"""
# The header of ATen asks for those of cuBLAS, cuSPARSE and cuSOLVER.
KERNEL = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void twice(float *x, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
void run(torch::Tensor x) {
  twice<<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), x.numel());
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &run); }
"""


def tiny_kernels(folder: Path) -> tuple[Path, str]:
    """A source distribution with one kernel, and its sha256."""
    archive = folder / "tiny_kernels-1.0.tar.gz"
    information = "Metadata-Version: 2.1\nName: tiny-kernels\nVersion: 1.0\nRequires-Dist: torch\n"
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in (("PKG-INFO", information), ("setup.py", SETUP), ("tiny.cu", KERNEL)):
            member = tarfile.TarInfo(f"tiny_kernels-1.0/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive, hashlib.sha256(archive.read_bytes()).hexdigest()


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def made(tools: Tools, lock: Path, prefix: Path) -> str:
    """What ``envsolve install`` of a lock says, on a PATH that has the system's programs alone."""
    command = [program("envsolve"), "install", str(lock), "--prefix", str(prefix), "--no-verify"]
    environment = {**tools.environment, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def test_pycuda_is_compiled_with_the_nvcc_of_its_plan(tools: Tools, tmp_path: Path) -> None:
    lock, prefix = tmp_path / "pylock.toml", tmp_path / "env"
    tools.envsolve("pycuda", "--target", f"H100, {SYSTEM}", "-o", str(lock))
    with pytest.raises(UsageError, match=r"takes gcc \d+ or older; this machine has gcc 99\.1"):
        install(lock, prefix, machine=Machine(host_compilers=(HostCompiler("gcc", "99.1", "/usr/bin/gcc"),)))
    assert "compiling pycuda" in made(tools, lock, prefix)
    # Where there is no driver, the stub that it was linked against lets it be imported.
    (stub,) = prefix.glob("lib/python3*/site-packages/nvidia/cu13/lib/stubs/libcuda.so")
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "libcuda.so.1").symlink_to(stub)
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(tmp_path / "driver")}
    command = [str(prefix / "bin/python"), "-c", CUBIN]
    cubin = subprocess.run(command, env=environment, capture_output=True, timeout=300, check=True).stdout
    assert cubin.startswith(b"\x7fELF") and b"twice" in cubin


@pytest.mark.parametrize("kind", ["archive", "repository"])
def test_an_extension_of_torch_carries_code_for_the_cards_that_were_meant(
    kind: str, tools: Tools, tmp_path: Path
) -> None:
    lock, prefix = tmp_path / "pylock.toml", tmp_path / "env"
    archive, digest = tiny_kernels(tmp_path)
    address = f"tiny-kernels @ {archive.as_uri()}#sha256={digest}"
    if kind == "repository":
        repository(tmp_path / "kernels", {"setup.py": SETUP, "tiny.cu": KERNEL}, tag="v1")
        address = f"tiny-kernels @ git+{(tmp_path / 'kernels').as_uri()}@v1"
    target = f"RTX 3090 + H100, {SYSTEM}"
    tools.envsolve("torch>=2.14", address, "--cuda", "cu132", "--target", target, "-o", str(lock))
    made(tools, lock, prefix)
    (library,) = prefix.glob("lib/python3*/site-packages/tiny_kernels*.so")
    measured = envsolve.measure(os.fspath(library))
    (found,) = measured.libraries
    assert found.code == ("sm_86", "sm_90")
