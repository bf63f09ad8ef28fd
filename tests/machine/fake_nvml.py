"""The functions of ``pynvml`` that detection calls, over plain records; errors are pynvml's own classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml


@dataclass
class FakeGpu:
    """A value, or the NVML error code that asking for it gives (as ``Refusal``)."""

    name: Any = "NVIDIA H100 80GB HBM3"
    cc: Any = (9, 0)
    memory: Any = 85520809984
    uuid: Any = "GPU-00000000-0000-0000-0000-000000000001"
    mig: Any = (0, 0)
    slices: list[Any] = field(default_factory=list)
    instance: tuple[int, int] = (1, 0)


@dataclass
class Refusal:
    code: int


NOT_SUPPORTED = Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)
NO_PERMISSION = Refusal(pynvml.NVML_ERROR_NO_PERMISSION)
LOST = Refusal(pynvml.NVML_ERROR_GPU_IS_LOST)


class FakeNvml:
    """Stands for the module ``pynvml``."""

    NVMLError = pynvml.NVMLError
    NVML_ERROR_NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
    NVML_ERROR_NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
    NVML_ERROR_FUNCTION_NOT_FOUND = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE

    def __init__(self, gpus: list[Any], driver: Any = "550.54.15", cuda: Any = 12040, init: Any = None) -> None:
        self.gpus, self.driver, self.cuda, self.init = gpus, driver, cuda, init

    def nvmlInit(self) -> None:
        _give(self.init)

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> Any:
        return _give(self.driver)

    def nvmlSystemGetCudaDriverVersion_v2(self) -> Any:
        return _give(self.cuda)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return _give(self.gpus[index])

    def nvmlDeviceGetName(self, handle: FakeGpu) -> Any:
        return _give(handle.name)

    def nvmlDeviceGetCudaComputeCapability(self, handle: FakeGpu) -> Any:
        return _give(handle.cc)

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu) -> Any:
        return SimpleNamespace(total=_give(handle.memory))

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> Any:
        return _give(handle.uuid)

    def nvmlDeviceGetMigMode(self, handle: FakeGpu) -> Any:
        return _give(handle.mig)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: FakeGpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: FakeGpu, index: int) -> Any:
        return _give(handle.slices[index] if index < len(handle.slices) else Refusal(pynvml.NVML_ERROR_NOT_FOUND))

    def nvmlDeviceGetGpuInstanceId(self, handle: FakeGpu) -> int:
        return handle.instance[0]

    def nvmlDeviceGetComputeInstanceId(self, handle: FakeGpu) -> int:
        return handle.instance[1]


def _give(value: Any) -> Any:
    if isinstance(value, Refusal):
        raise pynvml.NVMLError(value.code)
    return value
