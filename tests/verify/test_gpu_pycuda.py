"""pycuda as it was compiled from source by ``tests/network/test_source_builds.py``: its kernel runs on a real GPU.

``ENVSOLVE_GPU_WHEELS`` names a folder with the wheel that was built and those that it needs, for a machine without a
network: pycuda, numpy, mako, markupsafe, pytools, platformdirs, siphash24, typing-extensions, nvidia-curand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PYTHON = os.environ.get("ENVSOLVE_GPU_PYTHON", sys.executable)
WHEELS = os.environ.get("ENVSOLVE_GPU_WHEELS", "")
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not WHEELS, reason="ENVSOLVE_GPU_WHEELS names no folder of wheels"),
    pytest.mark.skipif(not Path(NVCC).exists(), reason="SourceModule runs nvcc"),
]
PROGRAM = """
import numpy
import pycuda.autoinit
import pycuda.driver as driver
from pycuda.compiler import SourceModule

module = SourceModule("__global__ void scale(float *x, float by) { x[blockIdx.x * blockDim.x + threadIdx.x] *= by; }")
scale = module.get_function("scale")
values = numpy.arange(1024, dtype=numpy.float32)
scale(driver.InOut(values), numpy.float32(3), grid=(4, 1), block=(256, 1, 1))
assert numpy.array_equal(values, 3 * numpy.arange(1024, dtype=numpy.float32)), values
print("scaled on", pycuda.autoinit.device.name(), pycuda.autoinit.device.compute_capability())
"""


def test_a_kernel_of_pycuda_runs(tmp_path: Path) -> None:
    wheels = sorted(Path(WHEELS).glob("*.whl"))
    assert any(wheel.name.startswith("pycuda-") for wheel in wheels)
    for wheel in wheels:  # the interpreter need have no pip
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / "packages")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "packages"),
        "PATH": os.pathsep.join([str(Path(NVCC).parent), os.environ.get("PATH", os.defpath)]),
        "PYCUDA_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run([PYTHON, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "scaled on" in done.stdout
