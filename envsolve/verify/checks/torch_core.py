"""PyTorch itself: it imports and sees the GPUs, and its kernels give exactly the CPU's values.

Values are whole numbers that every type holds exactly, in whatever order they are added. So comparisons are for
equality, with no tolerance behind which a fault could hide.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from unittest import SkipTest

from check_driver import LIBRARY
from check_support import attention_problem, check, expect_equal

CPU_ONLY = "CPU only"
COUNT = 10007
SIZE = 256
KERNELS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
# torch's words if none of the kernels asked for is made for the GPU or the type.
NOT_OFFERED = ("No available kernel", "No viable backend")


@check("torch-import", runs_on="host", order=30, needs=("torch",))
def import_torch():
    """Import torch and compare its view of the GPUs with the driver's.

    A CUDA build that imports on a machine without a GPU has shown too little to pass.
    """
    import torch

    build = "torch {}, {}".format(torch.__version__, variant(torch))
    there = listed_by_driver()
    if not there and variant(torch) == CPU_ONLY:
        return {"detail": "{}, imports".format(build)}
    if not there:
        raise SkipTest("{}, imports, but the driver lists no GPU for it to see".format(build))
    if torch.version.cuda is None:
        what = "is a CPU build" if variant(torch) == CPU_ONLY else "is not for NVIDIA GPUs"
        raise RuntimeError("{}: {}, and the driver lists {} GPU(s)".format(build, what, there))
    torch.cuda.init()  # Unlike is_available(), this says what is wrong.
    seen = torch.cuda.device_count()
    if not torch.cuda.is_available() or seen != there:
        raise RuntimeError("{}: sees {} GPU(s), and the driver lists {}".format(build, seen, there))
    return {"detail": "{}, sees {} GPU(s); arch list {}".format(build, seen, " ".join(torch.cuda.get_arch_list()))}


def variant(torch):
    """Say what the build is for."""
    if torch.version.cuda:
        return "CUDA " + torch.version.cuda
    hip = getattr(torch.version, "hip", None)
    return "ROCm " + hip if hip else CPU_ONLY


def listed_by_driver():
    """Count the driver's GPUs; 0 if it does not start, which another check reports."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        return 0
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


@check("torch-code", runs_on="gpu", order=37, needs=("torch",))
def code(ordinal):
    """Run a kernel without the driver's compiler; if that fails, with it, in another process.

    ``CUDA_DISABLE_PTX_JIT`` (CUDA C++ Programming Guide, "CUDA Environment Variables") forbids the driver to compile:
    what still runs is machine code.
    """
    os.environ.update(CUDA_DISABLE_PTX_JIT="1", CUDA_CACHE_DISABLE="1")  # Read when the driver starts: not yet.
    try:
        compute(ordinal)
    except RuntimeError:
        with_it = in_another_process(ordinal)
        if with_it:
            raise RuntimeError(with_it) from None
        return {"detail": "torch's kernels are PTX, which the driver compiles at first use", "seen": {"code": "ptx"}}
    return {"detail": "torch's kernels are machine code for this GPU", "seen": {"code": "sass"}}


def compute(ordinal):
    """Compute on the GPU, and compare every value."""
    import torch

    values = torch.arange(1000, device=torch.device("cuda", int(ordinal))) * 3 + 1
    if values.cpu().tolist() != [3 * i + 1 for i in range(1000)]:
        raise RuntimeError("wrong values")


def in_another_process(ordinal):
    """Compute with the driver's compiler allowed; return the error, or an empty text."""
    unset = ("CUDA_DISABLE_PTX_JIT", "ENVSOLVE_RESULT")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    command = [sys.executable, sys.argv[0], __file__, "compute", str(ordinal)]
    ended = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if not ended.returncode:
        return ""
    return ended.stderr.decode(errors="replace").strip() or "ended with exit code {}".format(ended.returncode)


@check("torch-elementwise", runs_on="gpu", order=35, needs=("torch",))
def elementwise(ordinal):
    """Compare products, sorts, sums and choices in every common type."""
    import torch

    torch.manual_seed(0)
    device = torch.device("cuda", int(ordinal))
    types = [torch.float32, torch.float16, torch.float64, torch.int64]
    if torch.cuda.get_device_capability(device) >= (8, 0):
        types.append(torch.bfloat16)
    x, y = (torch.randint(-8, 8, (COUNT,)) for _ in range(2))
    product = x * y + 1
    for dtype in types:
        left, right = x.to(device).to(dtype), y.to(device).to(dtype)
        found = left * right + 1
        expect_equal(found, product.double(), "product in {}".format(dtype))
        expect_equal(found.sort().values, product.sort().values.double(), "sort in {}".format(dtype))
        expect_equal(found.double().sum(), product.double().sum(), "sum in {}".format(dtype))
        expect_equal(torch.where(left > right, left, right), torch.max(x, y).double(), "where in {}".format(dtype))
    torch.cuda.synchronize(device)
    names = ", ".join(str(dtype).split(".")[-1] for dtype in types)
    return {"detail": "product, sort, sum and where in {}: all values equal the CPU's".format(names)}


@check("torch-matmul", runs_on="gpu", order=40, needs=("torch",), quick=True)
def matmul(ordinal):
    """Compare products in every type that the GPU's matrix units have with 64-bit integers on the CPU.

    The numbers are minus one, zero and one, and there are at most 256 to a sum: each partial sum is a whole number that
    even bfloat16 holds exactly.
    """
    import torch

    torch.manual_seed(0)
    device = torch.device("cuda", int(ordinal))
    capability = torch.cuda.get_device_capability(device)
    left, right = (torch.randint(-1, 2, (SIZE, SIZE)) for _ in range(2))
    expected = (left @ right).double()
    types = [torch.float32, torch.float16] + ([torch.bfloat16] if capability >= (8, 0) else [])
    for dtype in types:
        expect_equal(left.to(device, dtype) @ right.to(device, dtype), expected, "product in {}".format(dtype))
    names = [str(dtype).split(".")[-1] for dtype in types]
    # GPUs from 8.9 on multiply 8-bit floats; torch has had this form of the function since 2.5.
    if capability >= (8, 9) and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5):
        expect_equal(eight_bit(torch, left.to(device), right.to(device)), expected, "product in float8_e4m3fn")
        names.append("float8_e4m3fn")
    torch.cuda.synchronize(device)
    return {"detail": "{0} x {0} in {1}: all values equal the CPU's".format(SIZE, ", ".join(names))}


def eight_bit(torch, left, right):
    """The product of 8-bit floats, which the matrix units take by rows and by columns."""
    one = torch.ones((), device=left.device)
    rows, columns = left.to(torch.float8_e4m3fn), right.t().contiguous().to(torch.float8_e4m3fn).t()
    return torch._scaled_mm(rows, columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


@check("torch-convolution", runs_on="gpu", order=42, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def convolution(ordinal):
    """Compare a convolution by cuDNN, requested by name, with one on the CPU.

    cuDNN may choose an algorithm that goes through fractions (Winograd, FFT): the answers are rounded to whole numbers
    before they are compared.
    """
    import torch

    if not torch.backends.cudnn.is_available():
        raise RuntimeError("torch {} finds no cuDNN".format(torch.__version__))
    torch.manual_seed(0)
    device = torch.device("cuda", int(ordinal))
    images, filters = torch.randint(-4, 5, (2, 16, 32, 32)), torch.randint(-1, 2, (32, 16, 3, 3))
    expected = torch.nn.functional.conv2d(images.double(), filters.double(), padding=1)
    for dtype in (torch.float32, torch.float16):
        found = torch.cudnn_convolution(
            images.to(device, dtype), filters.to(device, dtype), [1, 1], [1, 1], [1, 1], 1, False, True, True
        )
        expect_equal(found.round(), expected, "convolution in {}".format(dtype))
    torch.cuda.synchronize(device)
    version = torch.backends.cudnn.version()
    return {"detail": "cuDNN {}: float32 and float16, all {} values equal the CPU's".format(version, expected.numel())}


@check("torch-attention", runs_on="gpu", order=44, needs=("torch",))
def attention(ordinal):
    """Compare scaled dot-product attention by torch's own choice, then by each kernel that it has for the GPU."""
    import torch

    compute = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if compute is None:
        raise SkipTest("torch {} has no scaled dot-product attention; 2.0 and newer do".format(torch.__version__))
    device = torch.device("cuda", int(ordinal))
    *inputs, answer = attention_problem(torch)
    dtype = torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16
    inputs = [tensor.to(device, dtype) for tensor in inputs]
    expect_equal(compute(*inputs), answer, "attention by torch's choice")
    ran = [name for name in KERNELS if by_name(torch, compute, name, inputs, answer)]
    torch.cuda.synchronize(device)
    named = "by torch's choice" + "".join(", {}".format(name.lower()) for name in ran)
    return {"detail": "{} {}: all values are exact".format(str(dtype).split(".")[-1], named)}


def by_name(torch, compute, name, inputs, answer):
    """Compare one kernel; False if torch does not have it, or not for this GPU."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:  # torch older than 2.3
        return False
    if not hasattr(SDPBackend, name):
        return False
    try:
        with sdpa_kernel(getattr(SDPBackend, name)):
            found = compute(*inputs)
    except RuntimeError as error:
        if any(words in str(error) for words in NOT_OFFERED):
            return False
        raise
    expect_equal(found, answer, "attention by {}".format(name.lower()))
    return True
