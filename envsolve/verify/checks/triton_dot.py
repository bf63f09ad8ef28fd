"""A Triton kernel with ``tl.dot`` runs on the GPU's matrix units, and every value is the CPU's."""

from __future__ import annotations

import os

from check_ptxas import assemblers, seen
from check_values import expect_equal

NAME = "triton-dot"
RUNS_ON = "gpu"
ORDER = 52
NEEDS = ("torch", "triton")
VARIABLES = ("TRITON_INTERPRET", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")

SIZE = 128


def check(ordinal):
    """Multiply matrices of minus one, zero and one, whose sums float32 holds exactly."""
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y"):
        raise RuntimeError("with TRITON_INTERPRET set, Triton compiles nothing: it interprets kernels on the CPU")
    ran = assemblers()
    import torch
    import triton

    torch.cuda.set_device(int(ordinal))
    torch.manual_seed(0)
    left, right = (torch.randint(-1, 2, (SIZE, SIZE)) for _ in range(2))
    expected = (left @ right).double()
    types = [torch.float16] + ([torch.bfloat16] if torch.cuda.get_device_capability() >= (8, 0) else [])
    for dtype in types:
        out = torch.full((SIZE, SIZE), float("nan"), device="cuda")
        kernel()[(SIZE // 64, SIZE // 64)](left.to("cuda", dtype), right.to("cuda", dtype), out, SIZE)
        torch.cuda.synchronize()
        expect_equal(out, expected, "tl.dot in {}".format(dtype))
    names = ", ".join(str(dtype).split(".")[-1] for dtype in types)
    return {"detail": "Triton {}: {}, all values are the CPU's".format(triton.__version__, names), "seen": seen(ran)}


def kernel():
    """Define the kernel; Triton is imported in the check alone."""
    global tl
    import triton
    import triton.language as tl

    @triton.jit
    def multiply(left, right, out, size):
        rows = tl.program_id(0) * 64 + tl.arange(0, 64)
        columns = tl.program_id(1) * 64 + tl.arange(0, 64)
        total = tl.zeros((64, 64), dtype=tl.float32)
        for start in range(0, size, 32):
            inner = start + tl.arange(0, 32)
            a = tl.load(left + rows[:, None] * size + inner[None, :])
            b = tl.load(right + inner[:, None] * size + columns[None, :])
            total += tl.dot(a, b)
        tl.store(out + rows[:, None] * size + columns[None, :], total)

    return multiply
