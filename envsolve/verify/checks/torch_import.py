"""PyTorch imports, and sees as many GPUs as the driver lists.

A CUDA build that imports where there is no GPU has shown too little to pass.
"""

from __future__ import annotations

import ctypes
import sys
from unittest import SkipTest

NAME = "torch-import"
RUNS_ON = "host"
ORDER = 30
NEEDS = ("torch",)

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
CPU_ONLY = "CPU only"


def check():
    """Import torch and compare its view of the GPUs with the driver's."""
    import torch

    build = "torch {}, {}".format(torch.__version__, flavour(torch))
    there = listed_by_driver()
    if not there and flavour(torch) == CPU_ONLY:
        return {"detail": "{}, imports".format(build)}
    if not there:
        raise SkipTest("{}, imports, but the driver lists no GPU for it to see".format(build))
    if torch.version.cuda is None:
        what = "is a CPU build" if flavour(torch) == CPU_ONLY else "is not for NVIDIA GPUs"
        raise RuntimeError("{}: {}, and the driver lists {} GPU(s)".format(build, what, there))
    torch.cuda.init()  # Unlike is_available(), this says what is wrong.
    seen = torch.cuda.device_count()
    if not torch.cuda.is_available() or seen != there:
        raise RuntimeError("{}: sees {} GPU(s), and the driver lists {}".format(build, seen, there))
    return {"detail": "{}, sees {} GPU(s); arch list {}".format(build, seen, " ".join(torch.cuda.get_arch_list()))}


def flavour(torch):
    """Say what the build is for."""
    if torch.version.cuda:
        return "CUDA " + torch.version.cuda
    hip = getattr(torch.version, "hip", None)
    return "ROCm " + hip if hip else CPU_ONLY


def listed_by_driver():
    """Count the driver's GPUs; 0 where it does not start, which is another check's matter."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        return 0
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value
