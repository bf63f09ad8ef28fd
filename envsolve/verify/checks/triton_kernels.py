"""Triton: kernels compile and run on a GPU, and compile to cubins for a named one without GPU or driver.

Triton itself chooses the ptxas. Which one it ran is read off the process that it started, not guessed from its version.
"""

from __future__ import annotations

import os
from pathlib import Path

from check_driver import expect_architecture
from check_support import PTXAS_VARIABLES, assemblers, check, expect_equal, ptxas_seen, ptxas_version

COUNT, BLOCK = 10007, 256
SIZE = 128
# Triton compiles simple kernels for older GPUs too, yet supports none of them: PyTorch's inductor refuses them in these
# words ("Triton only supports devices of CUDA Capability >= 7.0", torch/_inductor/exc.py).
OLDEST = 70
# The matrix units multiply 8-bit floats from 8.9 on; Triton refuses e4m3 before.
OLDEST_FLOAT8 = 89


def watched():
    """The list of assemblers that run from now on; fail if Triton would compile nothing."""
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y"):
        raise RuntimeError("with TRITON_INTERPRET set, Triton compiles nothing: it interprets kernels on the CPU")
    return assemblers()


@check(
    "triton-kernel",
    runs_on="gpu",
    order=50,
    needs=("torch", "triton"),
    variables=("TRITON_INTERPRET", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"),
)
def kernel(ordinal):
    """Launch ``out = x * y + 1`` over whole numbers, which float32 holds exactly."""
    ran = watched()
    import torch
    import triton

    torch.cuda.set_device(int(ordinal))
    x, y = (torch.randint(-1000, 1000, (COUNT,)) for _ in range(2))
    out = torch.full((COUNT,), float("nan"), device="cuda")
    multiply_add_kernel()[(triton.cdiv(COUNT, BLOCK),)](x.float().cuda(), y.float().cuda(), out, COUNT)
    torch.cuda.synchronize()
    wrong = int((out.cpu().double() != (x * y + 1).double()).sum())
    if wrong:
        raise ArithmeticError("{} of {} values differ from the CPU's".format(wrong, COUNT))
    return {
        "detail": "Triton {}: all {} values equal the CPU's".format(triton.__version__, COUNT),
        "seen": ptxas_seen(ran),
    }


def multiply_add_kernel():
    """Define the kernel; Triton is imported only in the check."""
    global tl
    import triton
    import triton.language as tl

    @triton.jit
    def multiply_add(x, y, out, count):
        at = tl.program_id(0) * 256 + tl.arange(0, 256)
        inside = at < count
        tl.store(out + at, tl.load(x + at, mask=inside) * tl.load(y + at, mask=inside) + 1.0, mask=inside)

    return multiply_add


@check(
    "triton-dot",
    runs_on="gpu",
    order=52,
    needs=("torch", "triton"),
    variables=("TRITON_INTERPRET", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"),
)
def dot(ordinal):
    """Multiply matrices of minus one, zero and one, whose sums float32 holds exactly."""
    ran = watched()
    import torch
    import triton

    torch.cuda.set_device(int(ordinal))
    torch.manual_seed(0)
    left, right = (torch.randint(-1, 2, (SIZE, SIZE)) for _ in range(2))
    expected = (left @ right).double()
    types = [torch.float16] + ([torch.bfloat16] if torch.cuda.get_device_capability() >= (8, 0) else [])
    for dtype in types:
        out = torch.full((SIZE, SIZE), float("nan"), device="cuda")
        multiply_kernel()[(SIZE // 64, SIZE // 64)](left.to("cuda", dtype), right.to("cuda", dtype), out, SIZE)
        torch.cuda.synchronize()
        expect_equal(out, expected, "tl.dot in {}".format(dtype))
    names = ", ".join(str(dtype).split(".")[-1] for dtype in types)
    return {
        "detail": "Triton {}: {}, all values equal the CPU's".format(triton.__version__, names),
        "seen": ptxas_seen(ran),
    }


def multiply_kernel():
    """Define the kernel; Triton is imported only in the check."""
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


@check(
    "triton-compile",
    runs_on="architecture",
    order=60,
    needs=("triton",),
    variables=("TRITON_INTERPRET", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"),
)
def compile_for(capability):
    """Compile for ``capability`` (``9.0``) and look at what came out."""
    major, minor = (int(part) for part in capability.split("."))
    arch = 10 * major + minor
    if arch < OLDEST:
        raise RuntimeError("Triton supports devices of compute capability 7.0 and newer, not {}".format(capability))
    ran = watched()
    import triton

    names = []
    for name, cubin in compiled(triton, arch):
        expect_architecture(cubin, arch)
        names.append(name)
    if not ran:
        raise RuntimeError("Triton {} made a cubin without running a ptxas".format(triton.__version__))
    detail = "Triton {}: cubins for sm_{} by {}".format(triton.__version__, arch, ptxas_version(ran[-1]))
    detail = "; ".join(["{}: {}".format(detail, ", ".join(names)), *without_effect(ran[-1])])
    return {"detail": detail, "seen": ptxas_seen(ran)}


def without_effect(program):
    """Say if the user names a ptxas and Triton ran another: it passes over one that it cannot use in silence."""
    named = {name: os.environ[name] for name in PTXAS_VARIABLES if os.environ.get(name)}
    if not any(Path(path).resolve() == Path(program).resolve() for path in named.values()):
        for name, path in named.items():
            yield "{}={} had no effect: Triton ran {}".format(name, path, program)


def compiled(triton, arch):
    """Compile ahead of time, each with its name: kernels of one feature each, which may be known for fewer GPUs.

    They have no constants, whose spelling differs between Tritons.
    """
    global tl
    import triton.language as tl

    try:
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError:
        from unittest import SkipTest

        raise SkipTest(
            "Triton {} cannot compile for a GPU that this machine does not have; 3.0 and newer can".format(
                triton.__version__
            )
        ) from None

    @triton.jit
    def multiply_add(x, y, out, count):
        at = tl.program_id(0) * 256 + tl.arange(0, 256)
        inside = at < count
        tl.store(out + at, tl.load(x + at, mask=inside) * tl.load(y + at, mask=inside) + 1.0, mask=inside)

    @triton.jit
    def multiply(left, right, out, size):
        rows = tl.program_id(0) * 64 + tl.arange(0, 64)
        columns = tl.program_id(1) * 64 + tl.arange(0, 64)
        total = tl.zeros((64, 64), dtype=tl.float32)
        for start in range(0, size, 64):
            inner = start + tl.arange(0, 64)
            a = tl.load(left + rows[:, None] * size + inner[None, :])
            b = tl.load(right + inner[:, None] * size + columns[None, :])
            total += tl.dot(a, b)
        tl.store(out + rows[:, None] * size + columns[None, :], total)

    @triton.jit
    def attend(queries, keys, values, out, length):
        rows, width = tl.program_id(0) * 64 + tl.arange(0, 64), tl.arange(0, 64)
        query = tl.load(queries + rows[:, None] * 64 + width[None, :])
        top = tl.zeros((64,), dtype=tl.float32) - 1e30
        weight = tl.zeros((64,), dtype=tl.float32)
        total = tl.zeros((64, 64), dtype=tl.float32)
        for start in range(0, length, 64):
            at = start + tl.arange(0, 64)
            scores = tl.dot(query, tl.load(keys + at[None, :] * 64 + width[:, None]))
            higher = tl.maximum(top, tl.max(scores, 1))
            shares, before = tl.exp(scores - higher[:, None]), tl.exp(top - higher)
            weight = weight * before + tl.sum(shares, 1)
            value = tl.load(values + at[:, None] * 64 + width[None, :])
            total = total * before[:, None] + tl.dot(shares.to(tl.float16), value)
            top = higher
        tl.store(out + rows[:, None] * 64 + width[None, :], total / weight[:, None])

    half = {"left": "*fp16", "right": "*fp16", "out": "*fp32", "size": "i32"}
    kernels = [
        ("element-wise", multiply_add, {"x": "*fp32", "y": "*fp32", "out": "*fp32", "count": "i32"}),
        ("matmul", multiply, half),
        (
            "attention",
            attend,
            {"queries": "*fp16", "keys": "*fp16", "values": "*fp16", "out": "*fp32", "length": "i32"},
        ),
    ]
    if arch >= OLDEST_FLOAT8:
        kernels += [("fp8", multiply, {**half, "left": "*fp8e4nv", "right": "*fp8e4nv"})]
    for name, kernel, signature in kernels:
        yield name, triton.compile(ASTSource(kernel, signature), target=GPUTarget("cuda", arch, 32)).asm["cubin"]
