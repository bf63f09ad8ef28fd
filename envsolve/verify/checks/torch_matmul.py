"""PyTorch multiplies matrices on the GPU, and every value is the CPU's.

The numbers are small whole ones: each product and each sum is exact in float32 (and TF32), in whatever order they are
added. So the comparison is for equality, with no tolerance behind which a fault could hide.
"""

from __future__ import annotations

NAME = "torch-matmul"
RUNS_ON = "gpu"
ORDER = 40
NEEDS = ("torch",)

SIZE = 256


def check(ordinal):
    """Compare a product and an element-wise kernel with 64-bit integers on the CPU."""
    import torch

    torch.manual_seed(0)
    left, right = (torch.randint(-8, 8, (SIZE, SIZE)) for _ in range(2))
    expected = (left @ right).clamp(min=0) + 1
    device = torch.device("cuda", int(ordinal))
    product = left.float().to(device) @ right.float().to(device)
    found = (product.relu() + 1).cpu()
    torch.cuda.synchronize(device)
    wrong = int((found.long() != expected).sum())
    if wrong:
        raise ArithmeticError("{} of {} values differ from the CPU's".format(wrong, expected.numel()))
    return {"detail": "float32 {0} x {0}: all {1} values are the CPU's".format(SIZE, expected.numel())}
