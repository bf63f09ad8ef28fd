"""An extension with a CUDA kernel is built by torch.utils.cpp_extension, loads, and computes the right values."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest import SkipTest

from check_toolkit import NVCC, nvcc_path, seen
from check_values import expect_equal

NAME = "torch-extension"
RUNS_ON = "gpu"
ORDER = 60
NEEDS = ("torch",)
BUILDS = True
VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "TORCH_CUDA_ARCH_LIST", "MAX_JOBS")

COUNT = 1000
# The kernel knows nothing of torch: nvcc takes long over torch's headers, and the host compiler proves them.
KERNEL = """
__global__ void scale_and_add(int *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = 3 * values[i] + i;
}

int launch(int *values, int count)
{
    scale_and_add<<<(count + 127) / 128, 128>>>(values, count);
    return cudaGetLastError();
}
"""
BINDING = """
#include <ATen/core/Tensor.h>
#include <torch/library.h>

int launch(int *values, int count);

int64_t scale_and_add(at::Tensor values)
{
    return launch(values.data_ptr<int>(), static_cast<int>(values.numel()));
}

TORCH_LIBRARY(verify_extension, library)
{
    library.def("scale_and_add", scale_and_add);
}
"""


def check(ordinal):
    """Build for the GPU, load, launch, and compare every value."""
    import torch

    if torch.version.cuda is None:
        raise SkipTest("torch {} is not for CUDA".format(torch.__version__))
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        raise SkipTest("torch cannot build extensions here: {}".format(error)) from None
    if cpp_extension.CUDA_HOME is None:
        raise SkipTest("torch finds no CUDA toolkit to build with: CUDA_HOME is not set, and no nvcc is on PATH")
    if not cpp_extension.is_ninja_available():
        raise SkipTest("torch builds an extension at run time with ninja, which is not on PATH")
    device = torch.device("cuda", int(ordinal))
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability(device)))
    with tempfile.TemporaryDirectory() as folder:
        try:
            built(cpp_extension, Path(folder))
        except Exception as error:
            if nvcc_path()[1]:
                raise
            raise SkipTest("{} is the system's, and: {}".format(cpp_extension.CUDA_HOME, error)) from None
        values = torch.arange(COUNT, dtype=torch.int32, device=device)
        with torch.cuda.device(device):
            status = torch.ops.verify_extension.scale_and_add(values)
        if status:
            raise RuntimeError("launching the kernel failed: CUDA error {}".format(status))
        expect_equal(values, 4 * torch.arange(COUNT).double(), "kernel of the extension")
    detail = "built with {}: all {} values are right".format(cpp_extension.CUDA_HOME, COUNT)
    return {"detail": detail, "seen": seen(Path(cpp_extension.CUDA_HOME) / "bin" / NVCC)}


def built(cpp_extension, folder):
    """Build and load the extension in a folder."""
    sources = {"kernel.cu": KERNEL, "binding.cpp": BINDING}
    for name, text in sources.items():
        (folder / name).write_text(text, encoding="utf-8")
    cpp_extension.load(
        name="verify_extension",
        sources=[str(folder / name) for name in sources],
        build_directory=str(folder),
        is_python_module=False,
        with_cuda=True,
    )
