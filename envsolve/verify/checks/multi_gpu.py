"""Several GPUs: memory is copied between them, and NCCL sums over all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from unittest import SkipTest

from check_support import check, expect_equal

COUNT = 1 << 20
DONE = "every sum is right"


@check("peer-copy", runs_on="gpus", order=80, needs=("torch",))
def peer_copy(count):
    """Copy between each two GPUs, each way; say which reach each other directly."""
    import torch

    pairs = [(a, b) for a in range(int(count)) for b in range(int(count)) if a != b]
    for source, target in pairs:
        sent = torch.arange(COUNT, device="cuda:{}".format(source)) * (source + 2) + target
        arrived = torch.full((COUNT,), -1, device="cuda:{}".format(target))
        arrived.copy_(sent)
        expected = torch.arange(COUNT).double() * (source + 2) + target
        expect_equal(arrived, expected, "copy from GPU {} to GPU {}".format(source, target))
    direct = [pair for pair in pairs if torch.cuda.can_device_access_peer(*pair)]
    how = "all directly" if len(direct) == len(pairs) else "{} directly, the rest through the host".format(len(direct))
    return {"detail": "{} copies between {} GPUs, {}: all values arrived".format(len(pairs), count, how)}


@check(
    "nccl-all-reduce",
    runs_on="gpus",
    order=85,
    needs=("torch",),
    variables=("NCCL_P2P_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "LD_LIBRARY_PATH"),
)
def all_reduce(count):
    """Let torchrun start a process for each GPU, and check that each of them gets correct sums."""
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_nccl_available()):
        raise SkipTest("torch {} is built without NCCL".format(torch.__version__))
    # argv[0] is the harness, which also runs each process.
    program = ["--nproc-per-node", count, sys.argv[0], __file__, "sum_with_others"]
    environment = {name: value for name, value in os.environ.items() if name != "ENVSOLVE_RESULT"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", *program]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    words = ended.stdout.decode(errors="replace")
    right = words.count(DONE)
    if ended.returncode or right != int(count):
        raise RuntimeError("{} of {} processes computed the right sum\n{}".format(right, count, words))
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return {"detail": "NCCL {}, torchrun: all sums over {} GPUs are right".format(version, count)}


def sum_with_others():
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
        raise ArithmeticError("rank {}: {} of {} sums are wrong".format(rank, wrong, COUNT))
    return {"detail": "rank {}: {}".format(rank, DONE)}
