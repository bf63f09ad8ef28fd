"""bitsandbytes' own kernels quantise to 4 bits and back, and give each number's nearest of the sixteen."""

from __future__ import annotations

NAME = "bitsandbytes"
RUNS_ON = "gpu"
ORDER = 73
NEEDS = ("torch", "bitsandbytes")

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


def check(ordinal):
    """Quantise the levels themselves, moved a little, and see each come back to its own."""
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
        raise ArithmeticError("{} of {} values differ from the level that they are of".format(wrong, levels.numel()))
    return {"detail": "bitsandbytes {}: NF4 there and back, all values are right".format(bitsandbytes.__version__)}
