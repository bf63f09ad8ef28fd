from __future__ import annotations

import pytest

from envsolve.machine.model import Gpu
from envsolve.machine.nvidia import Device, Slice, order_matters, visible


def gpu(uuid: str, name: str = "NVIDIA A100", cc: str = "8.0") -> Gpu:
    return Gpu(name=name, compute_capability=cc, uuid=uuid)


PLAIN = [Device(gpu("GPU-aaaa-1")), Device(gpu("GPU-aabb-2")), Device(gpu("GPU-cccc-3"))]
ALL = ("GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3")


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, ALL),
        ("", ()),
        (" ", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("all", ()),
        ("none", ()),
        ("0", ("GPU-aaaa-1",)),
        ("2,0", ("GPU-cccc-3", "GPU-aaaa-1")),
        ("0, 1", ("GPU-aaaa-1", "GPU-aabb-2")),
        ("0,-1,1", ("GPU-aaaa-1",)),
        ("0,7,1", ("GPU-aaaa-1",)),
        ("7,0", ()),
        ("1,,2", ("GPU-aabb-2",)),
        ("1gpu,2x", ("GPU-aabb-2", "GPU-cccc-3")),
        ("+1", ("GPU-aabb-2",)),
        ("0,0", ()),
        ("99999999999999999999", ()),
        ("GPU-c", ("GPU-cccc-3",)),
        ("GPU-aabb-2,GPU-aaaa-1", ("GPU-aabb-2", "GPU-aaaa-1")),
        ("GPU-aa", ()),  # fits two
        ("GPU-cccc-3,GPU-aa,GPU-aabb", ("GPU-cccc-3",)),
        ("GPU-zzzz", ()),
        ("GPU-cccc-3,GPU-cc", ()),  # the same one twice
        ("GPU-cccc-3,0", ("GPU-cccc-3",)),
        ("0,GPU-cccc-3", ("GPU-aaaa-1",)),
        ("gpu-cccc-3", ()),
    ],
)
def test_visible_devices(value: str | None, seen: tuple[str, ...]) -> None:
    assert tuple(g.uuid for g in visible(PLAIN, value)) == seen


MIG = [
    Device(gpu("GPU-aaaa"), (Slice(gpu("MIG-1111"), (1, 0)), Slice(gpu("MIG-2222"), (2, 0)))),
    Device(gpu("GPU-bbbb")),
]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, ("MIG-1111", "MIG-2222", "GPU-bbbb")),
        ("1", ("GPU-bbbb",)),
        ("GPU-aaaa", ("MIG-1111", "MIG-2222")),
        ("MIG-2222", ("MIG-2222",)),
        ("MIG-", ()),
        ("MIG-2222,MIG-1111", ("MIG-2222", "MIG-1111")),
        ("MIG-GPU-aaaa/2/0", ("MIG-2222",)),
        ("MIG-GPU-aaaa/9/0", ()),
    ],
)
def test_visible_mig_devices(value: str | None, seen: tuple[str, ...]) -> None:
    assert tuple(g.uuid for g in visible(MIG, value)) == seen


MIXED = [Device(gpu("GPU-a", "NVIDIA T4", "7.5")), Device(gpu("GPU-b", "NVIDIA A100", "8.0"))]


@pytest.mark.parametrize(
    ("devices", "value", "order", "matters"),
    [
        (MIXED, "0", None, True),
        (MIXED, "1,0", "FASTEST_FIRST", True),
        (MIXED, "0", "PCI_BUS_ID", False),
        (MIXED, None, None, False),
        (MIXED, "GPU-a", None, False),
        (MIXED, "-1", None, False),
        (MIXED, "", None, False),
        (PLAIN, "0", None, False),
    ],
)
def test_indices_of_unequal_gpus_need_cudas_own_order(
    devices: list[Device], value: str | None, order: str | None, matters: bool
) -> None:
    assert order_matters(devices, value, order) is matters
