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

COUNT = 1000


def check(ordinal):
    """Run a kernel without the driver's compiler; where that fails, with it, in another process."""
    os.environ.update(CUDA_DISABLE_PTX_JIT="1", CUDA_CACHE_DISABLE="1")  # Read when the driver starts: not yet.
    try:
        run(ordinal)
    except RuntimeError:
        with_it = in_another_process(ordinal)
        if with_it:
            raise RuntimeError(with_it) from None
        return {"detail": "torch's kernels are PTX, which the driver compiles at first use", "seen": {"code": "ptx"}}
    return {"detail": "torch's kernels are machine code for this card", "seen": {"code": "sass"}}


def run(ordinal):
    """Compute on the GPU, and compare every value."""
    import torch

    values = torch.arange(COUNT, device=torch.device("cuda", int(ordinal))) * 3 + 1
    if values.cpu().tolist() != [3 * i + 1 for i in range(COUNT)]:
        raise RuntimeError("wrong values")


def in_another_process(ordinal):
    """Run this file with the driver's compiler allowed; return its error, empty where there is none."""
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_DISABLE_PTX_JIT"}
    command = [sys.executable, __file__, str(ordinal)]
    ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE)
    if not ended.returncode:
        return ""
    return ended.stderr.decode(errors="replace").strip() or "ended with exit code {}".format(ended.returncode)


if __name__ == "__main__":
    del sys.path[0]  # This folder's modules must not stand before those that are verified.
    run(sys.argv[1])
