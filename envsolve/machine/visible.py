"""Which GPUs a CUDA program sees: ``CUDA_VISIBLE_DEVICES``, as CUDA reads it. Pure.

The rules follow the CUDA C++ Programming Guide (section "CUDA Environment Variables"), NVIDIA's MIG user guide, and,
for malformed lists, the reading that PyTorch's own NVML path (``torch.cuda._parse_visible_devices``) settled on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from envsolve.machine.model import Gpu

_LEADING_INTEGER = re.compile(r"\s*([+-]?\d+)")
_LEGACY_MIG = re.compile(r"MIG-(?P<gpu>GPU-[0-9a-fA-F-]+)/(?P<gi>\d+)/(?P<ci>\d+)")


@dataclass(frozen=True, slots=True)
class Slice:
    """One MIG device: what a program sees of it, and its (GPU instance, compute instance) ids where known."""

    gpu: Gpu
    instance: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One physical GPU, with its MIG devices where MIG mode is on."""

    gpu: Gpu
    slices: tuple[Slice, ...] = ()

    @property
    def seen(self) -> tuple[Gpu, ...]:
        """What a program can use: the MIG devices where there are any, else the GPU itself."""
        return tuple(part.gpu for part in self.slices) or (self.gpu,)


def visible(devices: Sequence[Device], value: str | None) -> tuple[Gpu, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES=value`` leaves, in its order.

    Args:
        devices: All GPUs, in the order that indices refer to.
        value: The variable; None where it is not set.

    Returns:
        Unset: all. Empty, or invalid from the start (``-1``, ``all``, ``NoDevFiles``): none. Otherwise the devices
        before the first invalid entry: an index out of range, a UUID prefix that fits none or several, an entry of
        another kind than the first. An entry that repeats leaves none at all.
    """
    if value is None:
        return tuple(gpu for device in devices for gpu in device.seen)
    chosen: list[tuple[Gpu, ...]] = []
    kind = _kind(value.strip())
    for entry in (part.strip() for part in value.split(",")):
        found = _pick(devices, entry) if _kind(entry) == kind else None
        if found is None:
            break
        if found in chosen:
            return ()
        chosen.append(found)
    return tuple(gpu for group in chosen for gpu in group)


def order_matters(devices: Sequence[Device], value: str | None, order: str | None) -> bool:
    """Whether indices cannot be read without CUDA itself.

    NVML lists GPUs by PCI bus. CUDA does so only under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; by default it puts the fastest
    first, an order that only the driver knows once the GPUs differ.
    """
    if value is None or order == "PCI_BUS_ID" or _kind(value.strip()) != "index" or not _index_list(value):
        return False
    return len({(device.gpu.name, device.gpu.compute_capability) for device in devices}) > 1


def _kind(entry: str) -> str:
    for prefix in ("GPU-", "MIG-"):
        if entry.startswith(prefix):
            return prefix
    return "index"


def _index_list(value: str) -> bool:
    return _index(value.split(",")[0]) is not None


def _index(entry: str) -> int | None:
    """CUDA reads indices like C's strtol: ``1gpu2`` is 1; a negative one ends the list."""
    match = _LEADING_INTEGER.match(entry)
    index = int(match[1]) if match else -1
    return index if index >= 0 else None


def _pick(devices: Sequence[Device], entry: str) -> tuple[Gpu, ...] | None:
    kind = _kind(entry)
    if kind == "index":
        index = _index(entry)
        return devices[index].seen if index is not None and index < len(devices) else None
    if legacy := _LEGACY_MIG.fullmatch(entry):
        wanted = (int(legacy["gi"]), int(legacy["ci"]))
        owners = [device for device in devices if (device.gpu.uuid or "").startswith(legacy["gpu"])]
        groups = [(part.gpu,) for device in owners for part in device.slices if part.instance == wanted]
    elif kind == "MIG-":
        parts = [part.gpu for device in devices for part in device.slices]
        groups = [(gpu,) for gpu in parts if (gpu.uuid or "").startswith(entry)]
    else:
        return next(iter(found), None) if len(found := _by_uuid(devices, entry)) == 1 else None
    return groups[0] if len(groups) == 1 else None


def _by_uuid(devices: Sequence[Device], prefix: str) -> list[tuple[Gpu, ...]]:
    return [device.seen for device in devices if (device.gpu.uuid or "").startswith(prefix)]
