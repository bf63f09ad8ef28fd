"""A Triton kernel compiles and runs on the GPU, and every value is the CPU's."""

from __future__ import annotations

import os

from check_ptxas import assemblers, seen

NAME = "triton-kernel"
RUNS_ON = "gpu"
ORDER = 50
NEEDS = ("torch", "triton")
VARIABLES = ("TRITON_INTERPRET", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")

COUNT, BLOCK = 10007, 256


def check(ordinal):
    """Launch ``out = x * y + 1`` over whole numbers, which float32 holds exactly."""
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y"):
        raise RuntimeError("with TRITON_INTERPRET set, Triton compiles nothing: it interprets kernels on the CPU")
    ran = assemblers()
    import torch
    import triton

    torch.cuda.set_device(int(ordinal))
    x, y = (torch.randint(-1000, 1000, (COUNT,)) for _ in range(2))
    out = torch.full((COUNT,), float("nan"), device="cuda")
    kernel()[(triton.cdiv(COUNT, BLOCK),)](x.float().cuda(), y.float().cuda(), out, COUNT)
    torch.cuda.synchronize()
    wrong = int((out.cpu().double() != (x * y + 1).double()).sum())
    if wrong:
        raise ArithmeticError("{} of {} values differ from the CPU's".format(wrong, COUNT))
    return {"detail": "Triton {}: all {} values are the CPU's".format(triton.__version__, COUNT), "seen": seen(ran)}


def kernel():
    """Define the kernel; Triton is imported in the check alone."""
    global tl
    import triton
    import triton.language as tl

    @triton.jit
    def multiply_add(x, y, out, count):
        at = tl.program_id(0) * 256 + tl.arange(0, 256)
        inside = at < count
        tl.store(out + at, tl.load(x + at, mask=inside) * tl.load(y + at, mask=inside) + 1.0, mask=inside)

    return multiply_add
