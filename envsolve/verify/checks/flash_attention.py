"""flash-attn's own kernel gives the exact answer of a problem of attention."""

from __future__ import annotations

from unittest import SkipTest

from check_attention import problem
from check_values import expect_equal

NAME = "flash-attn"
RUNS_ON = "gpu"
ORDER = 71
NEEDS = ("torch", "flash_attn")


def check(ordinal):
    """Compare in float16, and in bfloat16; flash-attn wants the heads after the length."""
    import torch

    device = torch.device("cuda", int(ordinal))
    if torch.cuda.get_device_capability(device) < (8, 0):
        raise SkipTest("flash-attn is for cards of compute capability 8.0 and newer")
    from flash_attn import __version__, flash_attn_func

    *inputs, answer = problem(torch)
    for dtype in (torch.float16, torch.bfloat16):
        by_length = [tensor.transpose(1, 2).contiguous().to(device, dtype) for tensor in inputs]
        expect_equal(flash_attn_func(*by_length).transpose(1, 2), answer, "flash_attn_func in {}".format(dtype))
    return {"detail": "flash-attn {}: float16 and bfloat16, all values are exact".format(__version__)}
