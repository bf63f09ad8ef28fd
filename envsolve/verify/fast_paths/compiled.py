"""Compiled code for the GPU: torch.compile, and the matrix units, TMA and warp specialisation through Triton.

Triton compiles for a GPU without a feature, too, and leaves the feature out: the code that it made says what is used.
"""

from __future__ import annotations

import re
from unittest import SkipTest

from check_measuring import attention, measured, need, optional, prepared
from check_support import check, expect_equal

SIZE, BLOCK = 256, 64
#: Instructions of the matrix units in PTX: of 10.x, 9.0, and older ones.
UNITS = re.compile(r"\b(tcgen05\.mma|wgmma\.mma_async|mma\.sync)[\w.:]*")


def multiply_kernel():
    """Define a product of square matrices; Triton is imported only in the check."""
    global tl
    import triton
    import triton.language as tl

    @triton.jit
    def multiply(left, right, out, size, precision: tl.constexpr):
        rows = tl.program_id(0) * 64 + tl.arange(0, 64)
        columns = tl.program_id(1) * 64 + tl.arange(0, 64)
        total = tl.zeros((64, 64), dtype=tl.float32)
        for start in range(0, size, 64):
            inner = start + tl.arange(0, 64)
            a = tl.load(left + rows[:, None] * size + inner[None, :])
            b = tl.load(right + inner[:, None] * size + columns[None, :])
            total += tl.dot(a, b, input_precision=precision)
        tl.store(out + rows[:, None] * size + columns[None, :], total)

    return multiply


def dot(ordinal, name, oldest, precision="tf32"):
    """Multiply by ``tl.dot`` in a type, and say which instruction does it."""
    torch, device, capability = prepared(ordinal)
    need(capability, oldest, name)
    dtype = getattr(torch, name)
    left, right = (torch.randint(-1, 2, (SIZE, SIZE)) for _ in range(2))
    a, b = left.to(device).float().to(dtype), right.to(device).float().to(dtype)
    out = torch.full((SIZE, SIZE), float("nan"), device=device)
    kernel, grid = multiply_kernel(), (SIZE // BLOCK, SIZE // BLOCK)
    made = kernel[grid](a, b, out, SIZE, precision)
    expect_equal(out, (left @ right).double(), "tl.dot in {}".format(name))
    match = UNITS.search(made.asm["ptx"])
    if match is None:
        raise SkipTest("the values are right, and Triton uses no instruction of the matrix units")
    found = measured(torch, "tl.dot in {}".format(name), lambda: kernel[grid](a, b, out, SIZE, precision))
    found["detail"] += " by {}".format(match.group(0))
    found["seen"]["instruction"] = match.group(0)
    return found


@check("triton-fp16-dot", runs_on="gpu", order=60, needs=("torch", "triton"))
@optional
def float16(ordinal):
    """float16."""
    return dot(ordinal, "float16", (7, 0))


@check("triton-bf16-dot", runs_on="gpu", order=61, needs=("torch", "triton"))
@optional
def bfloat16(ordinal):
    """bfloat16."""
    return dot(ordinal, "bfloat16", (8, 0))


@check("triton-tf32-dot", runs_on="gpu", order=62, needs=("torch", "triton"))
@optional
def tf32(ordinal):
    """float32 as TF32."""
    return dot(ordinal, "float32", (8, 0))


@check("triton-tf32x3-dot", runs_on="gpu", order=63, needs=("torch", "triton"))
@optional
def three_tf32(ordinal):
    """float32 as three TF32 products, whose sum has nearly float32's precision."""
    return dot(ordinal, "float32", (8, 0), "tf32x3")


@check("triton-fp8-dot", runs_on="gpu", order=64, needs=("torch", "triton"))
@optional
def float8(ordinal):
    """8-bit floats, e4m3."""
    return dot(ordinal, "float8_e4m3fn", (8, 9))


@check("triton-tma", runs_on="gpu", order=66, needs=("torch", "triton"))
@optional
def tma(ordinal):
    """A kernel copies blocks by the bulk copy engine (TMA) of 9.0 and newer, described by the host."""
    global tl
    torch, device, capability = prepared(ordinal)
    need(capability, (9, 0), "TMA")
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def turn_over(source, target):
        row, column = tl.program_id(0) * 64, tl.program_id(1) * 64
        target.store([column, row], source.load([row, column]).T)

    values = torch.randn(SIZE, SIZE, device=device)
    out = torch.full_like(values, float("nan"))
    described = [TensorDescriptor.from_tensor(tensor, [BLOCK, BLOCK]) for tensor in (values, out)]
    grid = (SIZE // BLOCK, SIZE // BLOCK)
    made = turn_over[grid](*described)
    expect_equal(out, values.t().cpu().double(), "copy by TMA")
    if "cp.async.bulk.tensor" not in made.asm["ptx"]:
        raise SkipTest("the values are right, and Triton copies without TMA")
    return measured(torch, "blocks copied by cp.async.bulk.tensor", lambda: turn_over[grid](*described))


@check("triton-warp-specialisation", runs_on="gpu", order=67, needs=("torch", "triton"))
@optional
def specialised(ordinal):
    """Warps of a kernel divide loading and computing among themselves."""
    global tl
    torch, device, capability = prepared(ordinal)
    need(capability, (9, 0), "warp specialisation")
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def multiply(left, right, out, size):
        row, column = tl.program_id(0) * 128, tl.program_id(1) * 128
        total = tl.zeros((128, 128), dtype=tl.float32)
        for start in tl.range(0, size, 64, warp_specialize=True):
            total = tl.dot(left.load([row, start]), right.load([column, start]).T, total)
        out.store([row, column], total.to(tl.float16))

    left, right = (torch.randint(-1, 2, (SIZE, SIZE)) for _ in range(2))
    a, b = left.to(device).half(), right.t().contiguous().to(device).half()
    out = torch.full((SIZE, SIZE), float("nan"), device=device, dtype=torch.float16)
    blocks = ([128, 64], [128, 64], [128, 128])
    described = [TensorDescriptor.from_tensor(tensor, blocks[at]) for at, tensor in enumerate((a, b, out))]
    grid = (SIZE // 128, SIZE // 128)
    try:
        made = multiply[grid](*described, SIZE, num_warps=4)
    except RuntimeError as error:  # of its passes, whose words go to stderr
        raise SkipTest("Triton {} does not compile it for this GPU: {}".format(triton.__version__, error)) from None
    expect_equal(out, (left @ right).double(), "product by specialised warps")
    if "warp_specialize" not in made.asm["ttgir"]:
        raise SkipTest("the values are right, and Triton {} leaves it out for this GPU".format(triton.__version__))
    return measured(torch, "product by specialised warps", lambda: multiply[grid](*described, SIZE, num_warps=4))


@check("torch-compile", runs_on="gpu", order=70, needs=("torch",))
@optional
def compiled(ordinal):
    """torch.compile fuses element-wise operations into one Triton kernel."""
    torch, device, _ = prepared(ordinal)
    if not hasattr(torch, "compile"):
        raise SkipTest("torch {} has no torch.compile".format(torch.__version__))

    def function(x, y):
        return (x * y + 1).relu() - y

    fused = torch.compile(function, fullgraph=True)
    x, y = (torch.randint(-8, 8, (1 << 20,), device=device).float() for _ in range(2))
    expect_equal(fused(x, y), function(x.cpu(), y.cpu()).double(), "compiled function")
    return measured(torch, "four operations in one kernel", lambda: fused(x, y))


@check("flex-attention", runs_on="gpu", order=71, needs=("torch", "triton"))
@optional
def flexible(ordinal):
    """torch's FlexAttention makes a Triton kernel for a mask of the user's."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 0), "FlexAttention")
    from torch.nn.attention.flex_attention import flex_attention

    return attention(torch, device, "FlexAttention", torch.compile(flex_attention, fullgraph=True))


@check("bitsandbytes-4bit", runs_on="gpu", order=75, needs=("torch", "bitsandbytes"))
@optional
def bitsandbytes(ordinal):
    """bitsandbytes packs weights in four bits and multiplies by them."""
    torch, device, _ = prepared(ordinal)
    from bitsandbytes import functional

    weights = torch.randint(-1, 2, (SIZE, SIZE), device=device).half()
    packed, state = functional.quantize_4bit(weights, quant_type="nf4")
    expect_equal(functional.dequantize_4bit(packed, state), weights.cpu().double(), "NF4 there and back")
    return measured(torch, "NF4 unpacked", lambda: functional.dequantize_4bit(packed, state))


@check("vllm-kernels", runs_on="gpu", order=76, needs=("torch", "vllm"))
@optional
def vllm(ordinal):
    """vLLM's own kernels: its activation, compared with torch's."""
    torch, device, _ = prepared(ordinal)
    import vllm._C  # noqa: F401  registers the operators

    values = torch.zeros(64, 2 * SIZE, device=device, dtype=torch.float16)
    out = torch.full((64, SIZE), float("nan"), device=device, dtype=torch.float16)
    torch.ops._C.silu_and_mul(out, values)
    expect_equal(out, torch.zeros(64, SIZE).double(), "silu_and_mul")
    return measured(torch, "silu_and_mul", lambda: torch.ops._C.silu_and_mul(out, values))
