"""Shared by the measures: times, the kernel that ran, and a fast path that is not offered."""

from __future__ import annotations

import functools
from unittest import SkipTest

from check_support import attention_problem, expect_equal

#: Of the first line of an error that says that a path is not offered.
MOST_CHARACTERS = 200
REPEATS = 20
#: What the driver says of a kernel that ran and failed: no sign of a path that is merely not offered.
FAULTS = ("CUDA error", "illegal memory access", "misaligned address", "device-side assert", "out of memory")


def optional(function):
    """Report a path that is not offered as skipped, with the reason; wrong values and faults of the GPU still fail."""

    @functools.wraps(function)
    def run(*arguments):
        try:
            return function(*arguments)
        except (ArithmeticError, SkipTest):
            raise
        except Exception as error:
            words = str(error).strip()
            if any(fault in words for fault in FAULTS):
                raise
            first = (words.splitlines() or [""])[0][:MOST_CHARACTERS]
            raise SkipTest("{}: {}".format(type(error).__name__, first)) from error

    return run


def need(capability, oldest, what):
    """Skip the check if the GPU is too old."""
    if capability < oldest:
        raise SkipTest("{} needs compute capability {}.{} or newer".format(what, *oldest))


def prepared(ordinal):
    """torch with the GPU as the current one, the device, and its compute capability."""
    import torch

    if torch.version.cuda is None:
        raise SkipTest("torch {} is not for CUDA".format(torch.__version__))
    torch.cuda.set_device(int(ordinal))
    torch.manual_seed(0)
    device = torch.device("cuda", int(ordinal))
    return torch, device, torch.cuda.get_device_capability(device)


def milliseconds(torch, run, repeats=REPEATS):
    """The median time of a call on the current GPU, after it has been warmed up."""
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def kernel_of(torch, run):
    """The kernel that takes most of a call's time, as the profiler records it; None if it records none."""
    from torch.profiler import ProfilerActivity, profile

    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as session:
        run()
        torch.cuda.synchronize()
    kernels = [event for event in session.events() if "CUDA" in str(event.device_type)]
    kernels = [event for event in kernels if not event.name.startswith(("Memcpy", "Memset", "gpu_"))]
    return max(kernels, key=lambda event: event.time_range.elapsed_us()).name if kernels else None


def measured(torch, what, run, operations=0):
    """The result of a path that ran: its time, its kernel and, if ``operations`` are counted, its rate."""
    took = milliseconds(torch, run)
    seen = {"ms": "{:.3f}".format(took)}
    if operations:
        seen["tflops"] = "{:.0f}".format(operations / took / 1e9)
        what += "; {} TFLOP/s".format(seen["tflops"])
    kernel = kernel_of(torch, run)
    if kernel:
        seen["kernel"] = kernel
    return {"detail": what, "seen": seen}


def attention(torch, device, what, compute, dtype=None):
    """Compare attention of a small problem, and measure a large one of 16 heads."""
    dtype = dtype or torch.bfloat16
    *inputs, answer = attention_problem(torch)
    expect_equal(compute(*[tensor.to(device, dtype) for tensor in inputs]), answer, what)
    batch, heads, length, width = 4, 16, 4096, 128
    large = [torch.randn(batch, heads, length, width, device=device, dtype=dtype) for _ in range(3)]
    return measured(torch, what, lambda: compute(*large), 4 * batch * heads * length * length * width)
