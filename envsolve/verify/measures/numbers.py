"""Rates of a GPU to compare with its documented peaks, and a long run that looks for changing results."""

from __future__ import annotations

import shutil
import subprocess
import time

from check_measuring import milliseconds, need, prepared
from check_support import check

SIZE = 8192
#: A block that no cache holds.
BYTES = 1 << 30
SECONDS = 2.0
#: What slows a GPU down, of ``nvidia-smi --help-query-gpu``; asked for while the GPU is busy.
STATE = (
    "uuid",
    "power.limit",
    "power.default_limit",
    "power.draw",
    "temperature.gpu",
    "clocks.sm",
    "clocks.max.sm",
    "ecc.mode.current",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "mig.mode.current",
    "clocks_event_reasons.hw_slowdown",
    "clocks_event_reasons.sw_power_cap",
    "clocks_event_reasons.sw_thermal_slowdown",
    "ecc.errors.uncorrected.volatile.total",
)


def state(ordinal):
    """Return the state of the GPU as ``nvidia-smi`` reports it, by name, without the values that it does not know."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    import torch

    place = torch.cuda.get_device_properties(int(ordinal))
    which = "GPU-{}".format(place.uuid) if hasattr(place, "uuid") else str(ordinal)
    command = [program, "--id=" + which, "--query-gpu=" + ",".join(STATE), "--format=csv,noheader,nounits"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    values = [value.strip() for value in ended.stdout.decode(errors="replace").strip().split(",")]
    if ended.returncode or len(values) != len(STATE):
        return {"uuid": which} if hasattr(place, "uuid") else {}
    told = {name: values[at] for at, name in enumerate(STATE)}
    return {name: value for name, value in told.items() if value and not value.startswith("[")}


def best(torch, run, seconds):
    """The shortest time of repeated calls, in milliseconds: other users of the GPU only make calls slower."""
    until, found = time.monotonic() + seconds, milliseconds(torch, run, 3)
    while time.monotonic() < until:
        found = min(found, milliseconds(torch, run, 5))
    return found


@check("bench", runs_on="gpu", order=10, needs=("torch",))
def bench(ordinal):
    """Products in bfloat16 (float16 before 8.0) and float8, and copies within the GPU and from pinned memory."""
    torch, device, capability = prepared(ordinal)
    need(capability, (7, 0), "a rate of the matrix units")
    dtype = torch.bfloat16 if capability >= (8, 0) else torch.float16
    left, right = (torch.randn(SIZE, SIZE, device=device, dtype=dtype) for _ in range(2))
    seen = {}
    name = "bf16_tflops" if capability >= (8, 0) else "fp16_tflops"
    seen[name] = 2 * SIZE**3 / best(torch, lambda: left @ right, 2 * SECONDS) / 1e9
    while_busy = state(ordinal)
    if capability >= (8, 9) and hasattr(torch, "_scaled_mm"):
        one = torch.ones((), device=device)
        a, b = left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn).t()

        def eight():
            return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        seen["fp8_tflops"] = 2 * SIZE**3 / best(torch, eight, SECONDS) / 1e9
    source, target = (torch.empty(BYTES, device=device, dtype=torch.uint8) for _ in range(2))
    seen["memory_gbs"] = 2 * BYTES / best(torch, lambda: target.copy_(source), SECONDS) / 1e6
    pinned = torch.empty(BYTES // 4, dtype=torch.uint8, pin_memory=True)
    part = target[: BYTES // 4]
    seen["pcie_gbs"] = BYTES / 4 / best(torch, lambda: part.copy_(pinned, non_blocking=True), SECONDS / 2) / 1e6
    words = ["{:.0f} TFLOP/s in {}".format(seen[name], name.split("_")[0])]
    words += ["{fp8_tflops:.0f} in fp8".format(**seen)] if "fp8_tflops" in seen else []
    words += ["{memory_gbs:.0f} GB/s of memory, {pcie_gbs:.0f} GB/s from pinned memory".format(**seen)]
    return {
        "detail": ", ".join(words),
        "seen": {**{key: "{:.1f}".format(value) for key, value in seen.items()}, **while_busy},
    }


@check("soak", runs_on="gpu", order=20, needs=("torch",))
def soak(ordinal, minutes):
    """Repeat products and memory patterns; a result that changes, or a wrong pattern, names the GPU by its UUID."""
    torch, device, capability = prepared(ordinal)
    named = state(ordinal)
    which = "GPU {} ({})".format(ordinal, named.get("uuid", "of unknown UUID"))
    dtype = torch.bfloat16 if capability >= (8, 0) else torch.float16
    # Sums of 2048 such values stay below 256, which bfloat16 holds exactly: the product's sum must be the integers'.
    left = torch.randint(-1, 2, (SIZE, SIZE // 4), device=device).to(dtype)
    right = torch.randint(-1, 2, (SIZE // 4, SIZE), device=device).to(dtype)
    first = left @ right
    ends = (left.long().sum(0) * right.long().sum(1)).sum()
    if int(first.double().sum()) != int(ends):
        raise ArithmeticError("{} computed a wrong sum of a product in its first run".format(which))
    free, _ = torch.cuda.mem_get_info(device)
    count = int(free * 0.8) // 8
    started, runs, patterns = time.monotonic(), 0, 0
    # In blocks, as a comparison needs memory of its own.
    block = 1 << 27
    blocks = [torch.empty(min(block, count - at), dtype=torch.int64, device=device) for at in range(0, count, block)]
    counter = torch.arange(block, dtype=torch.int64, device=device)
    while time.monotonic() - started < 60 * float(minutes):
        for _ in range(50):
            if not torch.equal(left @ right, first):
                passed = time.monotonic() - started
                raise ArithmeticError("{} changed a product after {} runs, {:.0f} s".format(which, runs, passed))
            runs += 1
        word = (0, -1, 0x5555555555555555, -0x5555555555555556)[patterns % 4]
        for number, memory in enumerate(blocks):
            torch.bitwise_xor(counter[: memory.numel()], word ^ number, out=memory)
        for number, memory in enumerate(blocks):
            wrong = memory.ne(torch.bitwise_xor(counter[: memory.numel()], word ^ number)).nonzero()
            if wrong.numel():
                at = 8 * (number * block + int(wrong[0]))
                raise ArithmeticError(
                    "{} lost a pattern: {} words are wrong, the first at byte {}".format(which, len(wrong), at)
                )
        patterns += 1
    after = state(ordinal)
    errors = "ecc.errors.uncorrected.volatile.total"
    if after.get(errors, "0") != named.get(errors, "0"):
        raise ArithmeticError("{} counted uncorrectable memory errors: {}".format(which, after[errors]))
    words = "{}: {} equal products, {} patterns over {:.1f} GiB".format(which, runs, patterns, count * 8 / 2**30)
    return {"detail": words, "seen": after}
