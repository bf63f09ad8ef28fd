"""Whether torch's own kernels on this card are machine code, or are compiled by the driver from PTX at first use.

The driver is told to compile nothing (``CUDA_DISABLE_PTX_JIT``, CUDA C++ Programming Guide, "CUDA Environment
Variables"): what still runs is machine code.
"""

from __future__ import annotations

import os
import subprocess
import sys

NAME = "torch-code"
RUNS_ON = "gpu"
ORDER = 37
NEEDS = ("torch",)

PROGRAM = """
import sys, torch
device = torch.device("cuda", int(sys.argv[1]))
values = torch.arange(1000, device=device) * 3 + 1
sys.exit(0 if values.cpu().tolist() == [3 * i + 1 for i in range(1000)] else "wrong values")
"""


def check(ordinal):
    """Run a kernel without the driver's compiler; where that fails, with it."""
    without = run(ordinal, {"CUDA_DISABLE_PTX_JIT": "1"})
    if not without:
        return {"detail": "torch's kernels are machine code for this card", "seen": {"code": "sass"}}
    with_it = run(ordinal, {})
    if with_it:
        raise RuntimeError(with_it)
    return {"detail": "torch's kernels are PTX, which the driver compiles at first use", "seen": {"code": "ptx"}}


def run(ordinal, settings):
    """Run the program; return its error, empty where there is none."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ordinal)],
        env={**os.environ, "CUDA_CACHE_DISABLE": "1", **settings},
        stderr=subprocess.PIPE,
    )
    if not ended.returncode:
        return ""
    return ended.stderr.decode(errors="replace").strip() or "ended with exit code {}".format(ended.returncode)
