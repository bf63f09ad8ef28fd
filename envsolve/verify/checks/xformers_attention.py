"""xformers' memory-efficient attention gives the exact answer of a problem of attention."""

from __future__ import annotations

from check_attention import problem
from check_values import expect_equal

NAME = "xformers-attention"
RUNS_ON = "gpu"
ORDER = 72
NEEDS = ("torch", "xformers")


def check(ordinal):
    """Compare xformers' own choice of kernel; it wants the heads after the length."""
    import torch
    import xformers
    from xformers.ops import memory_efficient_attention

    device = torch.device("cuda", int(ordinal))
    *inputs, answer = problem(torch)
    by_length = [tensor.transpose(1, 2).contiguous().to(device, torch.float16) for tensor in inputs]
    expect_equal(memory_efficient_attention(*by_length).transpose(1, 2), answer, "memory_efficient_attention")
    return {"detail": "xformers {}: memory_efficient_attention, all values are exact".format(xformers.__version__)}
