from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envsolve.machine.detect import detect
from envsolve.machine.known import dump_machine, parse_machine
from envsolve.machine.model import Gpu, Machine
from envsolve.machine.nvidia import Libcuda, NvmlAnswer, ask_nvml
from tests.machine.fake_nvml import FakeGpu, FakeNvml, Refusal

NO_NVML = NvmlAnswer(error="NVML Shared Library Not Found")


def nothing(*_: Any, **__: Any) -> None:
    return None


def here(root: Path, nvml: NvmlAnswer = NO_NVML, libcuda: Any = nothing, **environ: str) -> Machine:
    return detect(root=root, environ=environ, nvml=lambda: nvml, libcuda=libcuda)


def touch(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return detect()


def test_the_real_host(machine: Machine) -> None:
    assert machine.platform is not None
    assert machine.platform.os == ("windows" if os.name == "nt" else sys.platform)
    assert machine.platform.wsl is not None
    assert machine.python == "{}.{}".format(*sys.version_info[:2])
    assert machine.pythons is not None
    real = {Path(python.path).resolve(): python.version for python in machine.pythons}
    assert real[Path(sys.executable).resolve()] == "{}.{}.{}".format(*sys.version_info[:3])


def test_the_real_hosts_compiler(machine: Machine) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc here")
    printed = subprocess.run([gcc, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=True)
    assert machine.host_compilers is not None
    assert printed.stdout.strip() in {compiler.version for compiler in machine.host_compilers}


def test_the_real_hosts_toolkits(machine: Machine) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc here")
    printed = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    assert machine.toolkits is not None
    assert any(f"release {toolkit.version}," in printed and toolkit.nvcc for toolkit in machine.toolkits)


def test_the_real_hosts_gpus(machine: Machine) -> None:
    has_nodes = any(Path("/dev").glob("nvidia[0-9]*"))
    has_module = Path("/sys/module/nvidia").exists()
    if not has_nodes and not has_module:
        assert machine.gpus in ((), None)
        assert machine.driver is None or machine.driver.version is None
    if has_nodes and has_module:
        assert machine.driver is not None
        assert machine.driver.version == Path("/sys/module/nvidia/version").read_text().strip()


def test_the_real_host_survives_a_profile_file(machine: Machine) -> None:
    assert parse_machine(dump_machine(machine).encode()) == machine


def test_every_known_field_has_a_source(machine: Machine) -> None:
    for name in ("gpus", "toolkits", "host_compilers", "python", "pythons", "installers", "environment"):
        assert machine.sources[name]
    assert all(machine.sources[f"platform.{name}"] for name in ("os", "arch", "wsl"))


def test_a_host_without_any_trace_has_no_gpu(tmp_path: Path) -> None:
    machine = here(tmp_path)
    assert machine.gpus == ()
    assert machine.driver is None
    assert machine.toolkits == ()
    assert machine.sources["driver"] == "no kernel driver found (NVML: Shared Library Not Found)"


def test_a_driver_that_nobody_can_ask_leaves_the_gpus_unknown(tmp_path: Path) -> None:
    touch(tmp_path / "sys/module/nvidia/version", "550.54.15\n")
    machine = here(tmp_path)
    assert machine.gpus is None and "kernel module" in machine.sources["gpus"]
    assert machine.driver is not None and machine.driver.version == "550.54.15"
    assert machine.sources["driver.version"] == "/sys/module/nvidia/version"


def test_libcuda_answers_where_nvml_is_missing(tmp_path: Path) -> None:
    touch(tmp_path / "dev/nvgpu")
    orin = Gpu("Orin", "8.7", 62841, None, "ab")

    def libcuda(environ: Any, *, devices: bool = False, library: str = "") -> Libcuda:
        return Libcuda("/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1", "12.6", (orin,) if devices else None)

    machine = here(tmp_path, libcuda=libcuda)
    assert machine.gpus == (orin,) and machine.sources["gpus"] == "libcuda"
    assert machine.driver is not None and machine.driver.cuda == "12.6"


T4 = FakeGpu("Tesla T4", (7, 5), 15360 * 2**20, "GPU-00000000-0000-0000-0000-000000000001")
A100 = FakeGpu("NVIDIA A100-PCIE-40GB", (8, 0), 40960 * 2**20, "GPU-00000000-0000-0000-0000-000000000002")


def test_visible_devices_in_cudas_order_where_gpus_differ(tmp_path: Path) -> None:
    nvml = ask_nvml(FakeNvml([T4, A100]))

    def libcuda(environ: Any, *, devices: bool = False, library: str = "") -> Libcuda:
        first = Gpu("NVIDIA A100-PCIE-40GB", "8.0", 40000, None, "00000000-0000-0000-0000-000000000002")
        return Libcuda(None, "12.4", (first,) if devices else None)

    def names(libcuda: Any, **environ: str) -> list[str | None]:
        return [gpu.name for gpu in here(tmp_path, nvml, libcuda, **environ).gpus or ()]

    assert names(libcuda, CUDA_VISIBLE_DEVICES="0") == [A100.name]
    assert names(libcuda, CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID") == [T4.name]
    assert names(nothing, CUDA_VISIBLE_DEVICES="0") == [T4.name, A100.name]  # too many is the safe side
    assert names(libcuda, CUDA_VISIBLE_DEVICES="-1") == []
    assert names(libcuda) == [T4.name, A100.name]


def test_a_compat_library_is_told_apart_from_the_driver(tmp_path: Path) -> None:
    touch(tmp_path / "usr/lib64/libcuda.so.550.54.15")
    nvml = ask_nvml(FakeNvml([A100], cuda=13000))
    compat = Libcuda("/usr/local/cuda/compat/libcuda.so.580.65.06", "13.0")

    def libcuda(environ: Any, *, devices: bool = False, library: str = "libcuda.so.1") -> Libcuda:
        return compat if library == "libcuda.so.1" else Libcuda(library, "12.4")

    driver = here(tmp_path, nvml, libcuda).driver
    assert driver is not None
    assert (driver.version, driver.cuda, driver.compat_libcuda) == ("550.54.15", "12.4", "13.0")


def test_a_driver_older_than_the_library_beside_it(tmp_path: Path) -> None:
    """After an update without a reboot NVML refuses; the kernel driver's version is still read."""
    import pynvml

    touch(tmp_path / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  x")
    machine = here(tmp_path, ask_nvml(FakeNvml([], init=Refusal(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))))
    assert machine.driver is not None and machine.driver.version == "550.54.15"
    assert machine.gpus is None and "mismatch" in machine.sources["gpus"]


def test_variables_that_steer_cuda_are_recorded(tmp_path: Path) -> None:
    machine = here(tmp_path, CUDA_VISIBLE_DEVICES="", SECRET_TOKEN="x")
    assert machine.environment == {"CUDA_VISIBLE_DEVICES": ""}
