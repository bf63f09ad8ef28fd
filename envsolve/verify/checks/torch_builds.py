"""Code that PyTorch compiles at run time: a function by torch.compile, an extension by torch.utils.cpp_extension."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from unittest import SkipTest

from check_driver import expect_architecture
from check_support import NVCC, assemblers, check, expect_equal, nvcc_path, nvcc_seen, ptxas_seen

COUNT = 10007
# One kernel needs no pool of compilers; set here, before torch is imported and reads it.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
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


@check(
    "torch-compile",
    runs_on="gpu",
    order=56,
    needs=("torch", "triton"),
    variables=(
        "TORCH_COMPILE_DISABLE",
        "TORCHDYNAMO_DISABLE",
        "TRITON_PTXAS_PATH",
        "TRITON_PTXAS_BLACKWELL_PATH",
        "CC",
    ),
)
def compiled_function(ordinal):
    """Compare a product and a choice over whole numbers; see that it was compiled."""
    import torch

    if not hasattr(torch, "compile"):
        raise SkipTest("torch {} has no torch.compile; 2.0 and newer do".format(torch.__version__))
    from torch._inductor import metrics

    ran = assemblers()
    torch.cuda.set_device(int(ordinal))
    torch.manual_seed(0)
    x, y = (torch.randint(-100, 100, (COUNT,)) for _ in range(2))
    found = torch.compile(function, fullgraph=True)(x.float().cuda(), y.float().cuda())
    expect_equal(found, function(x.double(), y.double()), "compiled function")
    torch.cuda.synchronize()
    kernels = metrics.generated_kernel_count
    if not kernels:
        raise RuntimeError("torch.compile ran the function without compiling it")
    return {
        "detail": "{} kernel(s) compiled: all {} values equal the CPU's".format(kernels, COUNT),
        "seen": ptxas_seen(ran),
    }


def function(x, y):
    """The compiled function; float32 holds each of its values exactly."""
    return (x * y + 1).where(x > y, x - y)


@check(
    "torch-extension",
    runs_on="gpu",
    order=60,
    needs=("torch",),
    builds=True,
    variables=("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "TORCH_CUDA_ARCH_LIST", "MAX_JOBS"),
)
def extension(ordinal):
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
    with tempfile.TemporaryDirectory() as directory:
        try:
            built(cpp_extension, Path(directory))
        except Exception as error:
            if nvcc_path()[1]:
                raise
            raise SkipTest("{} is the system's, and: {}".format(cpp_extension.CUDA_HOME, error)) from None
        values = torch.arange(1000, dtype=torch.int32, device=device)
        with torch.cuda.device(device):
            status = torch.ops.verify_extension.scale_and_add(values)
        if status:
            raise RuntimeError("launching the kernel failed: CUDA error {}".format(status))
        expect_equal(values, 4 * torch.arange(1000).double(), "kernel of the extension")
    detail = "built with {}: all {} values are right".format(cpp_extension.CUDA_HOME, 1000)
    return {"detail": detail, "seen": nvcc_seen(Path(cpp_extension.CUDA_HOME) / "bin" / NVCC)}


def built(cpp_extension, directory):
    """Build and load the extension in a directory."""
    sources = {"kernel.cu": KERNEL, "binding.cpp": BINDING}
    for name, text in sources.items():
        (directory / name).write_text(text, encoding="utf-8")
    cpp_extension.load(
        name="verify_extension",
        sources=[str(directory / name) for name in sources],
        build_directory=str(directory),
        is_python_module=False,
        with_cuda=True,
    )


@check(
    "torch-extension",
    runs_on="architecture",
    order=61,
    needs=("torch",),
    builds=True,
    variables=("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
)
def extension_for(capability):
    """Compile the extension's kernel for ``capability`` (``9.0``), and its binding against torch's headers.

    It is not linked: nvcc's packages have no libraries to link with, and there is nothing here to load it with.
    """
    program, answered_for = nvcc_path()
    if program is None or not answered_for:
        raise SkipTest("there is no nvcc: neither in this environment nor in CUDA_HOME")
    compiler = shutil.which(os.environ.get("CXX") or "c++")
    if compiler is None:
        raise SkipTest("there is no host compiler")
    import torch

    if torch.version.cuda is None:
        raise SkipTest("torch {} is not for CUDA".format(torch.__version__))
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        raise SkipTest("torch cannot build extensions here: {}".format(error)) from None
    for name, text in (("kernel.cu", KERNEL), ("binding.cpp", BINDING)):
        Path(name).write_text(text, encoding="utf-8")
    arch = int(capability.replace(".", ""))
    target = "--generate-code=arch=compute_{0},code=sm_{0}".format(arch)
    run([str(program), "--cubin", target, "kernel.cu"])
    expect_architecture(Path("kernel.cubin").read_bytes(), arch)
    # What torch itself passes: older torches want C++17, newer ones C++20.
    standards = re.findall(r"-std=(c\+\+\d\d)", inspect.getsource(cpp_extension))
    folders = [*cpp_extension.include_paths(), str(program.parent.parent / "include")]
    command = [compiler, "-c", "-O0", "-fPIC", "-std=" + max(standards or ["c++17"]), "binding.cpp"]
    command += ["-D_GLIBCXX_USE_CXX11_ABI={:d}".format(torch._C._GLIBCXX_USE_CXX11_ABI)]
    run(command + ["-I" + folder for folder in folders])
    what = nvcc_seen(program)
    name = "nvcc {}".format(what.get("nvcc_cuda", what["nvcc"]))
    detail = "{}: kernel for sm_{}; {}: binding with the headers of torch".format(name, arch, Path(compiler).name)
    return {"detail": "{} {}".format(detail, torch.__version__), "seen": what}


def run(command):
    """Run a compiler; fail in its own words."""
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode:
        words = ended.stdout.decode(errors="replace").strip()
        raise RuntimeError("{} ended with exit code {}\n{}".format(command[0], ended.returncode, words))
