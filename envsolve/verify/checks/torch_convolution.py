"""cuDNN convolves on the GPU, and every value is the CPU's.

It may choose an algorithm that goes through fractions (Winograd, FFT): the answers, whole numbers, are rounded to whole
numbers before they are compared.
"""

from __future__ import annotations

from check_values import expect_equal

NAME = "torch-convolution"
RUNS_ON = "gpu"
ORDER = 42
NEEDS = ("torch",)
VARIABLES = ("LD_LIBRARY_PATH",)


def check(ordinal):
    """Compare a convolution by cuDNN, asked for by name, with one on the CPU."""
    import torch

    if not torch.backends.cudnn.is_available():
        raise RuntimeError("torch {} finds no cuDNN".format(torch.__version__))
    torch.manual_seed(0)
    device = torch.device("cuda", int(ordinal))
    images, filters = torch.randint(-4, 5, (2, 16, 32, 32)), torch.randint(-1, 2, (32, 16, 3, 3))
    expected = torch.nn.functional.conv2d(images.double(), filters.double(), padding=1)
    for dtype in (torch.float32, torch.float16):
        found = torch.cudnn_convolution(
            images.to(device, dtype), filters.to(device, dtype), [1, 1], [1, 1], [1, 1], 1, False, True, True
        )
        expect_equal(found.round(), expected, "convolution in {}".format(dtype))
    torch.cuda.synchronize(device)
    version = torch.backends.cudnn.version()
    return {"detail": "cuDNN {}: float32 and float16, all {} values are the CPU's".format(version, expected.numel())}
