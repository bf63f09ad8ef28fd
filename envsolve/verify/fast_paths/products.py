"""Products of matrices by the matrix units, in each type: each is tried, compared with exact values, and measured.

A path that is not offered is a skip with the reason; one that runs and is wrong is a failure. Matrices hold minus one,
zero and one, at most 256 to a sum that is compared: every type holds such sums exactly.
"""

from __future__ import annotations

from unittest import SkipTest

from check_measuring import measured, need, optional, prepared
from check_support import check, expect_equal

SMALL, LARGE = 256, 8192
#: The code of 4-bit floats (e2m1) for zero, one and minus one.
FOUR_BITS = {0: 0, 1: 2, -1: 10}


def product(torch, device, what, dtype, multiply=None):
    """Compare a small product, and measure a large one.

    Args:
        multiply: Multiplies two matrices of float32 by the path; by ``@`` in ``dtype`` if None.
    """
    left, right = (torch.randint(-1, 2, (SMALL, SMALL)) for _ in range(2))
    prepare = multiply or (lambda a, b: (lambda x, y: lambda: x @ y)(a.to(dtype), b.to(dtype)))
    found = prepare(left.to(device).float(), right.to(device).float())()
    expect_equal(found, (left @ right).double(), what)
    a, b = (torch.randint(-1, 2, (LARGE, LARGE), device=device).float() for _ in range(2))
    return measured(torch, what, prepare(a, b), 2 * LARGE**3)


@check("bf16-matmul", runs_on="gpu", order=10, needs=("torch",))
@optional
def bfloat16(ordinal):
    """The matrix units multiply bfloat16."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 0), "bfloat16 on matrix units")
    return product(torch, device, "bfloat16 product", torch.bfloat16)


@check("fp16-matmul", runs_on="gpu", order=11, needs=("torch",))
@optional
def float16(ordinal):
    """The matrix units multiply float16."""
    torch, device, capability = prepared(ordinal)
    need(capability, (7, 0), "float16 on matrix units")
    return product(torch, device, "float16 product", torch.float16)


@check("tf32-matmul", runs_on="gpu", order=12, needs=("torch",))
@optional
def tf32(ordinal):
    """The matrix units multiply float32 as TF32: 1 + 2**-12 is rounded to 1, which float32 would keep."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 0), "TF32")
    torch.backends.cuda.matmul.allow_tf32 = True
    fine = torch.full((SMALL, SMALL), 1 + 2.0**-12, device=device)
    if (fine @ torch.eye(SMALL, device=device)).ne(1).any():
        raise SkipTest("float32 products keep more bits than TF32 has, with allow_tf32 set")
    return product(torch, device, "TF32 product", torch.float32)


def scaled(torch, dtypes, scales, out=None):
    """A function that prepares ``torch._scaled_mm`` of two types and scales made for a shape."""

    def prepare(a, b):
        x, y = a.to(dtypes[0]), b.t().contiguous().to(dtypes[1]).t()
        sides = scales[0](a.device, *a.shape), scales[1](a.device, *b.t().shape)
        options = {"out_dtype": out or torch.bfloat16}
        return lambda: torch._scaled_mm(x, y, scale_a=sides[0], scale_b=sides[1], **options)

    return prepare


@check("fp8-e4m3-matmul", runs_on="gpu", order=14, needs=("torch",))
@optional
def float8_e4m3(ordinal):
    """The matrix units multiply 8-bit floats, with one scale for each matrix."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 9), "float8")
    one = (lambda place, *_: torch.ones((), device=place),) * 2
    types = (torch.float8_e4m3fn, torch.float8_e4m3fn)
    return product(torch, device, "float8 e4m3 product", None, scaled(torch, types, one))


@check("fp8-e5m2-matmul", runs_on="gpu", order=15, needs=("torch",))
@optional
def float8_e5m2(ordinal):
    """The same with e5m2 on one side, as gradients have it."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 9), "float8")
    one = (lambda place, *_: torch.ones((), device=place),) * 2
    types = (torch.float8_e5m2, torch.float8_e4m3fn)
    return product(torch, device, "float8 e5m2 by e4m3 product", None, scaled(torch, types, one))


@check("fp8-rowwise-matmul", runs_on="gpu", order=16, needs=("torch",))
@optional
def float8_rows(ordinal):
    """A scale for each row and column."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 9), "float8")
    sides = (
        lambda place, rows, _: torch.ones(rows, 1, device=place),
        lambda place, columns, _: torch.ones(1, columns, device=place),
    )
    types = (torch.float8_e4m3fn, torch.float8_e4m3fn)
    return product(torch, device, "float8 product with scales by row", None, scaled(torch, types, sides))


@check("mxfp8-matmul", runs_on="gpu", order=17, needs=("torch",))
@optional
def mxfp8(ordinal):
    """A scale for each 32 values; all scales are one, so that their order in memory does not matter."""
    torch, device, capability = prepared(ordinal)
    need(capability, (10, 0), "MXFP8")
    sides = (lambda place, rows, inner: torch.ones(rows * inner // 32, device=place).to(torch.float8_e8m0fnu),) * 2
    types = (torch.float8_e4m3fn, torch.float8_e4m3fn)
    return product(torch, device, "MXFP8 product", None, scaled(torch, types, sides))


def four_bits(torch, block, scale):
    """A function that prepares a product of 4-bit floats with a scale for each ``block`` values."""

    def packed(values):
        codes = torch.zeros_like(values, dtype=torch.uint8)
        for value, code in FOUR_BITS.items():
            codes[values == value] = code
        return (codes[:, ::2] | codes[:, 1::2] << 4).contiguous().view(torch.float4_e2m1fn_x2)

    def prepare(a, b):
        x, y = packed(a), packed(b.t().contiguous()).t()
        sides = [torch.ones(side.numel() // block, device=a.device).to(scale) for side in (a, b)]
        return lambda: torch._scaled_mm(x, y, scale_a=sides[0], scale_b=sides[1], out_dtype=torch.bfloat16)

    return prepare


@check("nvfp4-matmul", runs_on="gpu", order=18, needs=("torch",))
@optional
def nvfp4(ordinal):
    """4-bit floats with a float8 scale for each 16 values."""
    torch, device, capability = prepared(ordinal)
    need(capability, (10, 0), "NVFP4")
    return product(torch, device, "NVFP4 product", None, four_bits(torch, 16, torch.float8_e4m3fn))


@check("mxfp4-matmul", runs_on="gpu", order=19, needs=("torch",))
@optional
def mxfp4(ordinal):
    """4-bit floats with a power of two for each 32 values."""
    torch, device, capability = prepared(ordinal)
    need(capability, (10, 0), "MXFP4")
    return product(torch, device, "MXFP4 product", None, four_bits(torch, 32, torch.float8_e8m0fnu))


@check("int8-matmul", runs_on="gpu", order=20, needs=("torch",))
@optional
def int8(ordinal):
    """The matrix units multiply 8-bit integers."""
    torch, device, capability = prepared(ordinal)
    need(capability, (7, 5), "int8 on matrix units")

    def prepare(a, b):
        x, y = a.to(torch.int8), b.t().contiguous().to(torch.int8).t()
        return lambda: torch._int_mm(x, y)

    return product(torch, device, "int8 product", None, prepare)


@check("sparse-24-matmul", runs_on="gpu", order=21, needs=("torch",))
@optional
def two_of_four(ordinal):
    """The matrix units skip two zeros in each four."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 0), "2:4 sparsity")
    from torch.sparse import to_sparse_semi_structured

    pattern = torch.tensor([0, 0, 1, 1], device=device)
    left, right = torch.randint(-1, 2, (SMALL, SMALL)), torch.randint(-1, 2, (SMALL, SMALL))
    left = left * pattern.cpu().tile(SMALL, SMALL // 4)
    sparse = to_sparse_semi_structured(left.to(device).half())
    expect_equal(sparse @ right.to(device).half(), (left @ right).double(), "2:4 sparse product")
    large = torch.ones(LARGE, LARGE, device=device).half() * pattern.tile(LARGE, LARGE // 4)
    a, b = to_sparse_semi_structured(large), torch.ones(LARGE, LARGE, device=device).half()
    return measured(torch, "2:4 sparse float16 product, zeros counted", lambda: a @ b, 2 * LARGE**3)


@check("grouped-matmul", runs_on="gpu", order=22, needs=("torch",))
@optional
def grouped(ordinal):
    """Products of several sizes in one kernel, as mixtures of experts have them."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 0), "bfloat16 on matrix units")
    compute = getattr(torch.nn.functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    if compute is None:
        raise SkipTest("torch {} has no grouped_mm".format(torch.__version__))

    def prepare(size, groups):
        rows = torch.randint(-1, 2, (groups * size, size))
        experts = torch.randint(-1, 2, (groups, size, size))
        ends = torch.arange(1, groups + 1, dtype=torch.int32, device=device) * size
        a, b = rows.to(device, torch.bfloat16), experts.to(device, torch.bfloat16)
        return rows, experts, lambda: compute(a, b, offs=ends)

    rows, experts, run = prepare(SMALL, 4)
    expected = torch.bmm(rows.view(4, SMALL, SMALL), experts).view(-1, SMALL)
    expect_equal(run(), expected.double(), "grouped product")
    return measured(torch, "grouped bfloat16 product of 8 experts", prepare(2048, 8)[2], 2 * 8 * 2048**3)
