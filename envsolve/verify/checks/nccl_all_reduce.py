"""torchrun starts a process a GPU, NCCL sums over all of them, and every process has the right sums.

The file is the check, and the program of the processes that it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from unittest import SkipTest

NAME = "nccl-all-reduce"
RUNS_ON = "gpus"
ORDER = 85
NEEDS = ("torch",)
VARIABLES = ("NCCL_P2P_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "LD_LIBRARY_PATH")

COUNT = 1 << 20
DONE = "every sum is right"


def check(count):
    """Start the processes and see that each of them found its sums right."""
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_nccl_available()):
        raise SkipTest("torch {} is built without NCCL".format(torch.__version__))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, __file__]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    words = ended.stdout.decode(errors="replace")
    right = words.count(DONE)
    if ended.returncode or right != int(count):
        raise RuntimeError("{} of {} processes found their sums right\n{}".format(right, count, words))
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return {"detail": "NCCL {}, torchrun: all sums over {} GPUs are right".format(version, count)}


def work():
    """One process: sum whole numbers with the others, and compare every sum."""
    import torch
    import torch.distributed

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl")
    values = torch.arange(COUNT, device="cuda") * (rank + 1)
    torch.distributed.all_reduce(values)
    torch.cuda.synchronize()
    expected = torch.arange(COUNT) * (size * (size + 1) // 2)
    wrong = int((values.cpu() != expected).sum())
    torch.distributed.destroy_process_group()
    if wrong:
        sys.exit("rank {}: {} of {} sums are wrong".format(rank, wrong, COUNT))
    sys.stdout.write("rank {}: {}\n".format(rank, DONE))


if __name__ == "__main__":
    del sys.path[0]  # This folder's modules must not stand before those that are verified.
    work()
