"""Launches and transfers that avoid the CPU: graphs, other GPUs, network adapters, storage."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from unittest import SkipTest

from check_driver import LIBRARY, call, number
from check_measuring import milliseconds, optional, prepared
from check_support import check, expect_equal

#: CUdevice_attribute of cuda.h.
GPU_DIRECT_RDMA_SUPPORTED, DMA_BUF_SUPPORTED = 116, 124


@check("cuda-graphs", runs_on="gpu", order=50, needs=("torch",))
@optional
def graphs(ordinal):
    """A recorded graph of 50 small kernels is replayed, and takes less time than they do one at a time."""
    torch, device, _ = prepared(ordinal)
    values = torch.zeros(1000, device=device)

    def fifty():
        for _ in range(50):
            values.add_(1)

    alone = milliseconds(torch, fifty)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fifty()
    values.zero_()
    graph.replay()
    expect_equal(values, torch.full((1000,), 50.0).double(), "replayed graph")
    replayed = milliseconds(torch, graph.replay)
    words = "50 kernels take {:.3f} ms as a graph, and {:.3f} ms one at a time".format(replayed, alone)
    return {"detail": words, "seen": {"ms": "{:.3f}".format(replayed)}}


@check("peer-access", runs_on="gpu", order=52, needs=("torch",))
@optional
def peers(ordinal):
    """Each other GPU can be read directly."""
    torch, _, _ = prepared(ordinal)
    others = [other for other in range(torch.cuda.device_count()) if other != int(ordinal)]
    if not others:
        raise SkipTest("the driver lists one GPU")
    without = [str(other) for other in others if not torch.cuda.can_device_access_peer(int(ordinal), other)]
    if without:
        raise SkipTest("no direct access to GPU {}".format(", ".join(without)))
    return {"detail": "direct access to {} other GPU(s)".format(len(others))}


@check("gpudirect-rdma", runs_on="gpu", order=53)
@optional
def rdma(ordinal):
    """A network adapter can reach the GPU's memory: by DMA-BUF or nvidia-peermem."""
    cuda = ctypes.CDLL(LIBRARY)
    call(cuda, "cuInit", 0)
    device = number(cuda, "cuDeviceGet", int(ordinal))
    if not number(cuda, "cuDeviceGetAttribute", GPU_DIRECT_RDMA_SUPPORTED, device):
        raise SkipTest("the driver does not offer it for this GPU")
    ways = ["DMA-BUF"] if number(cuda, "cuDeviceGetAttribute", DMA_BUF_SUPPORTED, device) else []
    ways += ["nvidia-peermem"] if Path("/sys/module/nvidia_peermem").exists() else []
    adapters = Path("/sys/class/infiniband")
    if not ways:
        raise SkipTest("neither DMA-BUF nor the kernel module nvidia_peermem is there")
    names = sorted(path.name for path in adapters.iterdir()) if adapters.is_dir() else []
    if not names:
        raise SkipTest("the GPU offers {}, and there is no RDMA network adapter".format(" and ".join(ways)))
    return {"detail": "{}; adapters {}".format(" and ".join(ways), ", ".join(names))}


@check("gpudirect-storage", runs_on="gpu", order=54, needs=("torch",))
@optional
def storage(ordinal):
    """cuFile reads files into the GPU's memory without the CPU's, by the kernel module nvidia-fs."""
    if not Path("/proc/driver/nvidia-fs").is_dir():
        raise SkipTest("the kernel module nvidia-fs is not loaded: cuFile copies through the CPU's memory")
    torch, device, _ = prepared(ordinal)
    values = torch.arange(1 << 20, device=device, dtype=torch.int32)
    arrived = torch.zeros_like(values)
    torch.cuda.gds.gds_register_buffer(values.untyped_storage())
    torch.cuda.gds.gds_register_buffer(arrived.untyped_storage())
    file = torch.cuda.gds.GdsFile("values", os.O_CREAT | os.O_RDWR)
    file.save_storage(values.untyped_storage())
    file.load_storage(arrived.untyped_storage())
    expect_equal(arrived, values.cpu().double(), "file read by cuFile")
    return {"detail": "4 MiB written and read by cuFile"}
