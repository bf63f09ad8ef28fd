"""PyTorch's scaled dot-product attention, by each kernel that torch offers for the card, gives the exact answer."""

from __future__ import annotations

from unittest import SkipTest

from check_attention import problem
from check_values import expect_equal

NAME = "torch-attention"
RUNS_ON = "gpu"
ORDER = 44
NEEDS = ("torch",)

KERNELS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
# torch's words where none of the kernels asked for is made for the card or the type.
NOT_OFFERED = ("No available kernel", "No viable backend")


def check(ordinal):
    """Compare torch's own choice, then each kernel by name."""
    import torch

    attention = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if attention is None:
        raise SkipTest("torch {} has no scaled dot-product attention; 2.0 and newer do".format(torch.__version__))
    device = torch.device("cuda", int(ordinal))
    *inputs, answer = problem(torch)
    dtype = torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16
    inputs = [tensor.to(device, dtype) for tensor in inputs]
    expect_equal(attention(*inputs), answer, "attention by torch's choice")
    ran = [name for name in KERNELS if by_name(torch, attention, name, inputs, answer)]
    torch.cuda.synchronize(device)
    named = "by torch's choice" + "".join(", {}".format(name.lower()) for name in ran)
    return {"detail": "{} {}: all values are exact".format(str(dtype).split(".")[-1], named)}


def by_name(torch, attention, name, inputs, answer):
    """Compare one kernel; False where torch does not have it, or not for this card."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:  # torch older than 2.3
        return False
    if not hasattr(SDPBackend, name):
        return False
    try:
        with sdpa_kernel(getattr(SDPBackend, name)):
            found = attention(*inputs)
    except RuntimeError as error:
        if any(words in str(error) for words in NOT_OFFERED):
            return False
        raise
    expect_equal(found, answer, "attention by {}".format(name.lower()))
    return True
