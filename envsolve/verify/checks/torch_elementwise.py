"""PyTorch's own element-wise, reducing and sorting kernels give the CPU's values, in every common type."""

from __future__ import annotations

from check_values import expect_equal

NAME = "torch-elementwise"
RUNS_ON = "gpu"
ORDER = 35
NEEDS = ("torch",)

COUNT = 10007


def check(ordinal):
    """Compare whole numbers, small enough for every type to hold them exactly."""
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
    return {"detail": "product, sort, sum and where in {}: all values are the CPU's".format(names)}
