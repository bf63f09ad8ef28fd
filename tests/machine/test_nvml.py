from __future__ import annotations

import pynvml
import pytest

from envsolve.machine.model import Gpu
from envsolve.machine.nvidia import Device, Slice, ask_nvml, cuda_version
from tests.machine.fake_nvml import LOST, NO_PERMISSION, NOT_SUPPORTED, FakeGpu, FakeNvml, Refusal

UUID = "GPU-00000000-0000-0000-0000-000000000001"


def test_a_whole_answer() -> None:
    answer = ask_nvml(FakeNvml([FakeGpu()]))
    assert (answer.driver_version, answer.cuda, answer.error) == ("550.54.15", "12.4", None)
    assert answer.devices == (Device(Gpu("NVIDIA H100 80GB HBM3", "9.0", 81559, False, UUID)),)


def test_older_bindings_answer_in_bytes() -> None:
    answer = ask_nvml(FakeNvml([FakeGpu(name=b"Tesla T4")], driver=b"418.40.04"))
    assert answer.driver_version == "418.40.04"
    assert answer.devices is not None and answer.devices[0].gpu.name == "Tesla T4"


def test_each_refusal_costs_one_field() -> None:
    refused = FakeGpu(name=NOT_SUPPORTED, cc=NOT_SUPPORTED, memory=NOT_SUPPORTED, uuid=NO_PERMISSION, mig=NOT_SUPPORTED)
    answer = ask_nvml(FakeNvml([refused], cuda=Refusal(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)))
    assert answer.cuda is None
    assert answer.devices == (Device(Gpu(mig=False)),)


def test_mig_state_is_unknown_where_permission_is_missing() -> None:
    answer = ask_nvml(FakeNvml([FakeGpu(mig=NO_PERMISSION)]))
    assert answer.devices is not None and answer.devices[0].gpu.mig is None


def test_mig_devices_have_the_gpus_compute_capability() -> None:
    part = FakeGpu(name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", cc=NOT_SUPPORTED, memory=10 * 2**30, uuid="MIG-1")
    other = FakeGpu(name=part.name, cc=NOT_SUPPORTED, memory=NOT_SUPPORTED, uuid="MIG-2", instance=(9, 0))
    places = [part, Refusal(pynvml.NVML_ERROR_NOT_FOUND), other]
    answer = ask_nvml(FakeNvml([FakeGpu(mig=(1, 1), slices=places)]))
    assert answer.devices is not None
    assert answer.devices[0].slices == (
        Slice(Gpu(part.name, "9.0", 10240, True, "MIG-1"), (1, 0)),
        Slice(Gpu(part.name, "9.0", None, True, "MIG-2"), (9, 0)),
    )


def test_a_lost_gpu_keeps_its_place_and_a_forbidden_one_has_none() -> None:
    answer = ask_nvml(FakeNvml([LOST, NO_PERMISSION, FakeGpu()]))
    assert answer.devices is not None
    assert [device.gpu.name for device in answer.devices] == [None, "NVIDIA H100 80GB HBM3"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "mismatch"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"),
    ],
)
def test_no_nvml_is_an_answer(code: int, words: str) -> None:
    answer = ask_nvml(FakeNvml([], init=Refusal(code)))
    assert answer.devices is None and answer.error is not None and words in answer.error


def test_no_gpus_is_an_answer() -> None:
    assert ask_nvml(FakeNvml([])).devices == ()


@pytest.mark.parametrize(
    ("number", "text"), [(12040, "12.4"), (13000, "13.0"), (11080, "11.8"), (0, None), (None, None)]
)
def test_packed_versions(number: int | None, text: str | None) -> None:
    assert cuda_version(number) == text


def test_every_function_that_is_called_exists_in_the_bindings() -> None:
    called = [name for name in dir(FakeNvml) if name.lower().startswith("nvml")]
    assert [name for name in called if not hasattr(pynvml, name)] == []
