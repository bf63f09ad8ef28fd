"""Every GPU's memory is copied to every other, and what arrives is what was sent."""

from __future__ import annotations

from check_values import expect_equal

NAME = "peer-copy"
RUNS_ON = "gpus"
ORDER = 80
NEEDS = ("torch",)

COUNT = 1 << 20


def check(count):
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
