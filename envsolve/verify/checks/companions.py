"""Packages with their own kernels: each must give the known answer of a problem."""

from __future__ import annotations

from unittest import SkipTest

from check_support import attention_problem, check, expect_equal

BOXES = 500
BLOCK = 64
# NormalFloat4: QLoRA (arXiv 2305.14314), appendix E.
LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


@check("torchvision-nms", runs_on="gpu", order=70, needs=("torch", "torchvision"))
def non_maximum_suppression(ordinal):
    """Of boxes in pairs, apart from all others, the better one of each pair stays, best first."""
    import torch
    import torchvision

    device = torch.device("cuda", int(ordinal))
    corner = 100.0 * torch.arange(BOXES)
    better = torch.stack([corner, corner, corner + 10, corner + 10], 1)
    boxes = torch.cat([better + 1, better])  # The pair overlaps by 81 of 119: more than half.
    scores = torch.cat([torch.arange(BOXES), BOXES + torch.arange(BOXES)]).float()
    kept = torchvision.ops.nms(boxes.to(device), scores.to(device), 0.5).cpu().tolist()
    expected = list(range(2 * BOXES - 1, BOXES - 1, -1))
    if kept != expected:
        same = len(set(kept) & set(expected))
        raise ArithmeticError("nms kept {} boxes, {} of them the {} right ones".format(len(kept), same, BOXES))
    return {"detail": "torchvision {}: nms keeps the right {} boxes".format(torchvision.__version__, BOXES)}


@check("flash-attn", runs_on="gpu", order=71, needs=("torch", "flash_attn"))
def flash_attention(ordinal):
    """Compare in float16, and in bfloat16; flash-attn wants the heads after the length."""
    import torch

    device = torch.device("cuda", int(ordinal))
    if torch.cuda.get_device_capability(device) < (8, 0):
        raise SkipTest("flash-attn is for GPUs of compute capability 8.0 and newer")
    from flash_attn import __version__, flash_attn_func

    *inputs, answer = attention_problem(torch)
    for dtype in (torch.float16, torch.bfloat16):
        by_length = [tensor.transpose(1, 2).contiguous().to(device, dtype) for tensor in inputs]
        expect_equal(flash_attn_func(*by_length).transpose(1, 2), answer, "flash_attn_func in {}".format(dtype))
    return {"detail": "flash-attn {}: float16 and bfloat16, all values are exact".format(__version__)}


@check("xformers-attention", runs_on="gpu", order=72, needs=("torch", "xformers"))
def xformers_attention(ordinal):
    """Compare xformers' own choice of kernel; it wants the heads after the length."""
    import torch
    import xformers
    from xformers.ops import memory_efficient_attention

    device = torch.device("cuda", int(ordinal))
    *inputs, answer = attention_problem(torch)
    by_length = [tensor.transpose(1, 2).contiguous().to(device, torch.float16) for tensor in inputs]
    expect_equal(memory_efficient_attention(*by_length).transpose(1, 2), answer, "memory_efficient_attention")
    return {"detail": "xformers {}: memory_efficient_attention, all values are exact".format(xformers.__version__)}


@check("bitsandbytes", runs_on="gpu", order=73, needs=("torch", "bitsandbytes"))
def four_bits(ordinal):
    """Quantize values near NF4's levels to 4 bits, and check that each returns to its level."""
    import bitsandbytes
    import torch

    device = torch.device("cuda", int(ordinal))
    torch.manual_seed(0)
    chosen = torch.randint(len(LEVELS), (16, BLOCK))
    chosen[:, 0] = len(LEVELS) - 1  # Each block has a one: its scale.
    levels = torch.tensor(LEVELS)[chosen]
    moved = (levels + 0.01 * (torch.rand(levels.shape) - 0.5)).clamp(-1, 1)
    moved[:, 0] = 1.0
    function = bitsandbytes.functional
    packed, state = function.quantize_4bit(moved.to(device), blocksize=BLOCK, quant_type="nf4")
    found = function.dequantize_4bit(packed, state).cpu()
    # The nearest two levels are 0.07 apart; what is compared is which one it is.
    wrong = int(((found - levels).abs() > 1e-3).sum()) + int(found.shape != levels.shape)
    if wrong:
        raise ArithmeticError("{} of {} values differ from their quantization level".format(wrong, levels.numel()))
    return {
        "detail": "bitsandbytes {}: NF4 quantization and back: all values are right".format(bitsandbytes.__version__)
    }
