"""PyTorch multiplies matrices in each type that the card's matrix units have, and every value is the CPU's.

The numbers are minus one, zero and one, and there are at most 256 to a sum: each partial sum is a whole number that
even bfloat16 holds exactly, in whatever order they are added, and whatever is rounded in between. So the comparison is
for equality, with no tolerance behind which a fault could hide.
"""

from __future__ import annotations

from check_values import expect_equal

NAME = "torch-matmul"
RUNS_ON = "gpu"
ORDER = 40
NEEDS = ("torch",)
QUICK = True

SIZE = 256


def check(ordinal):
    """Compare products in every type with 64-bit integers on the CPU."""
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
    # Cards from 8.9 on multiply 8-bit floats; torch has had this form of the function since 2.5.
    if capability >= (8, 9) and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5):
        expect_equal(eight_bit(torch, left.to(device), right.to(device)), expected, "product in float8_e4m3fn")
        names.append("float8_e4m3fn")
    torch.cuda.synchronize(device)
    return {"detail": "{0} x {0} in {1}: all values are the CPU's".format(SIZE, ", ".join(names))}


def eight_bit(torch, left, right):
    """The product of 8-bit floats, which the matrix units take by rows and by columns."""
    one = torch.ones((), device=left.device)
    rows, columns = left.to(torch.float8_e4m3fn), right.t().contiguous().to(torch.float8_e4m3fn).t()
    return torch._scaled_mm(rows, columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
