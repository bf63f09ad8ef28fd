"""NVML through nvidia-ml-py: driver version, CUDA version, and every GPU with its MIG devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from envsolve.machine.model import Gpu
from envsolve.machine.visible import Device, Slice


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """What NVML says.

    Attributes:
        driver_version: Of the kernel driver, ``550.54.15``.
        cuda: CUDA version of the ``libcuda`` that NVML loads, ``12.4``: a compat library's, where one is found first.
        devices: GPUs by PCI bus, as this process may use them; None where NVML could not list them.
        error: Why NVML did not answer, in its words; None where it did.
    """

    driver_version: str | None = None
    cuda: str | None = None
    devices: tuple[Device, ...] | None = None
    error: str | None = None


def read_nvml() -> NvmlAnswer:
    """Ask the NVML of this host; a host without NVML gives an answer with ``error``."""
    try:
        import pynvml
    except ImportError as error:
        return NvmlAnswer(error=str(error))
    return ask_nvml(pynvml)


def ask_nvml(api: Any) -> NvmlAnswer:
    """Ask NVML through ``api``: the module ``pynvml``, or anything with the same functions."""
    try:
        api.nvmlInit()
    except api.NVMLError as error:
        return NvmlAnswer(error=str(error))
    try:
        count = _try(api, api.nvmlDeviceGetCount)
        devices = None if count is None else [_device(api, index) for index in range(count)]
        return NvmlAnswer(
            driver_version=_text(_try(api, api.nvmlSystemGetDriverVersion)),
            cuda=cuda_version(_try(api, api.nvmlSystemGetCudaDriverVersion_v2)),
            devices=None if devices is None else tuple(device for device in devices if device is not None),
        )
    finally:
        _try(api, api.nvmlShutdown)


def cuda_version(number: int | None) -> str | None:
    """CUDA's packed version number as text: 12040 is ``12.4``; None and 0 are unknown."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def _device(api: Any, index: int) -> Device | None:
    """One GPU; None where this process may not use it (CUDA does not count such a GPU either)."""
    try:
        handle = api.nvmlDeviceGetHandleByIndex(index)
    except api.NVMLError as error:
        # A GPU that fell off the bus stays in the list, unknown: dropping it would shift the indices of the others.
        return None if error.value == api.NVML_ERROR_NO_PERMISSION else Device(Gpu())
    mig = _mig_enabled(api, handle)
    cc = _try(api, api.nvmlDeviceGetCudaComputeCapability, handle)
    gpu = _gpu(api, handle, cc, mig)
    return Device(gpu, _slices(api, handle, cc) if mig else ())


def _gpu(api: Any, handle: Any, cc: tuple[int, int] | None, mig: bool | None) -> Gpu:
    # Integrated GPUs (GB10, Jetson) share the host's memory, and NVML says "Not Supported".
    memory = _try(api, api.nvmlDeviceGetMemoryInfo, handle)
    return Gpu(
        name=_text(_try(api, api.nvmlDeviceGetName, handle)),
        compute_capability=None if cc is None else f"{cc[0]}.{cc[1]}",
        memory_mib=None if memory is None or not memory.total else int(memory.total) // 2**20,
        mig=mig,
        uuid=_text(_try(api, api.nvmlDeviceGetUUID, handle)),
    )


def _mig_enabled(api: Any, handle: Any) -> bool | None:
    try:
        current, _pending = api.nvmlDeviceGetMigMode(handle)
    except api.NVMLError as error:
        # "Not Supported" is how a GPU without MIG, and a driver older than MIG, say no.
        no = (api.NVML_ERROR_NOT_SUPPORTED, api.NVML_ERROR_FUNCTION_NOT_FOUND)
        return False if error.value in no else None
    return bool(current == api.NVML_DEVICE_MIG_ENABLE)


def _slices(api: Any, handle: Any, cc: tuple[int, int] | None) -> tuple[Slice, ...]:
    found = []
    for index in range(_try(api, api.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _try(api, api.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part is None:  # the places for MIG devices are sparse
            continue
        gi = _try(api, api.nvmlDeviceGetGpuInstanceId, part)
        ci = _try(api, api.nvmlDeviceGetComputeInstanceId, part)
        found.append(Slice(_gpu(api, part, cc, True), None if gi is None or ci is None else (gi, ci)))
    return tuple(found)


def _try(api: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """One NVML call; None where NVML refuses it: each fact stands alone, so one refusal costs one field."""
    try:
        return function(*arguments)
    except api.NVMLError:
        return None


def _text(value: str | bytes | None) -> str | None:
    """Strings of NVML: older bindings return bytes."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value or None
