"""torch.compile makes a kernel of a function, and every value is the CPU's."""

from __future__ import annotations

import os
from unittest import SkipTest

from check_ptxas import assemblers, seen
from check_values import expect_equal

NAME = "torch-compile"
RUNS_ON = "gpu"
ORDER = 56
NEEDS = ("torch", "triton")
VARIABLES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "CC")

COUNT = 10007
# One kernel needs no pool of compilers; set here, before torch is imported and reads it.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def check(ordinal):
    """Compare a product and a choice over whole numbers; see that it was compiled, too."""
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
    return {"detail": "{} kernel(s) compiled: all {} values are the CPU's".format(kernels, COUNT), "seen": seen(ran)}


def function(x, y):
    """What is compiled; float32 holds each of its values exactly."""
    return (x * y + 1).where(x > y, x - y)
