"""The file that is sent to nodes: it runs on old Pythons without anything installed, whatever the driver does."""

from __future__ import annotations

import ast
import faulthandler
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from envsolve.fleet import probe_script
from envsolve.machine.detect import read_platform
from envsolve.machine.known import parse_machine
from envsolve.machine.model import Accelerator, Gpu, Machine

SCRIPT = Path(probe_script.__file__)

# What NVML answers for two GPUs: a healthy one with MIG off and uncorrected errors, and one that fell off the bus.
NVML = r"""
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "550.54.15", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12040; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(long)(i + 1); return i == 1 ? 15 : 0; }
int nvmlDeviceGetName(void *h, char *s, unsigned n) { strncpy(s, "NVIDIA H100 80GB HBM3", n); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) { strncpy(s, "GPU-1", n); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) { *a = 9; *b = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) { m[0] = 85520809984ull; m[1] = m[2] = 0; return 0; }
int nvmlDeviceGetMigMode(void *h, unsigned *a, unsigned *b) { *a = *b = 0; return 0; }
int nvmlDeviceGetTotalEccErrors(void *h, int t, int c, unsigned long long *n) { *n = 7; return 0; }
"""


def printed(*options: str, **environ: str) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", "-", *options]
    done = subprocess.run(
        command, input=SCRIPT.read_bytes(), env={"PATH": os.environ["PATH"], **environ}, capture_output=True, check=True
    )
    assert done.stdout.count(b"\n") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def profile(found: dict[str, Any]) -> Machine:
    return parse_machine(json.dumps(found).encode())


def test_it_is_python_3_6_and_imports_the_standard_library_only() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in named} <= sys.stdlib_module_names
    assert "__future__" not in named  # annotations came with 3.7


def test_it_prints_a_machine_as_detect_does() -> None:
    found = printed(ENVSOLVE_NODE="gpu17")
    assert (found["node"], found["faults"]) == ("gpu17", [])
    machine = profile(found)
    assert machine.platform is not None and machine.platform.libc == read_platform()[0].libc
    assert machine.pythons


def test_quick_leaves_out_what_takes_programs() -> None:
    assert not {"toolkits", "host_compilers", "pythons"} & printed("--quick").keys()


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc here")
    (tmp_path / "nvml.c").write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([gcc, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nvml.c")], check=True)
    return tmp_path


def test_gpus_driver_and_faults_come_from_nvml(driver: Path) -> None:
    found = printed(LD_LIBRARY_PATH=str(driver))
    machine = profile(found)
    assert machine.driver is not None and (machine.driver.version, machine.driver.cuda) == ("550.54.15", "12.4")
    assert machine.gpus == (Gpu("NVIDIA H100 80GB HBM3", "9.0", 81559, False, "GPU-1"), Gpu())
    assert found["faults"] == ["GPU 0 has 7 uncorrected ECC errors since it was reset", "GPU 1 is lost"]


def test_the_cuda_version_of_a_compat_library_is_not_the_drivers(driver: Path) -> None:
    compat = driver / "compat"
    compat.mkdir()
    found = printed(LD_LIBRARY_PATH=f"{compat}:{driver}")
    assert found["driver"] == {"version": "550.54.15", "cuda": None}


def hang() -> dict[str, Any]:
    time.sleep(600)
    return {}


def crash() -> dict[str, Any]:
    faulthandler.disable()  # or what was running is printed among the results of the tests
    os.abort()


def fail() -> dict[str, Any]:
    raise ValueError("odd")


def test_a_driver_that_hangs_or_crashes_is_an_answer() -> None:
    started = time.monotonic()
    assert "does not answer" in probe_script.in_child(hang, 0.2)["error"]
    assert time.monotonic() - started < 300
    assert "crashed" in probe_script.in_child(crash, 120)["error"]
    assert probe_script.in_child(fail, 120)["error"] == "NVML: odd"


def test_a_gpu_that_nobody_answers_for_is_unknown(tmp_path: Path) -> None:
    assert probe_script.machine(tmp_path, quick=True)["gpus"] == []
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("535.104.05\n")
    found = probe_script.machine(tmp_path, quick=True)
    assert found["gpus"] is None and found["driver"]["version"] == "535.104.05"
    assert "kernel module is loaded" in found["sources"]["gpus"]


def test_amd_gpus_come_from_the_kernel(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    bank = nodes / "1/mem_banks/0/properties"
    bank.parent.mkdir(parents=True)
    (nodes / "0").mkdir()
    (nodes / "0/properties").write_text("simd_count 0\ngfx_target_version 0\n")
    (nodes / "1/properties").write_text("simd_count 304\ngfx_target_version 90402\ndrm_render_minor 128\n")
    bank.write_text("heap_type 1\nsize_in_bytes 206141652992\n")
    name = tmp_path / "sys/class/drm/renderD128/device/product_name"
    name.parent.mkdir(parents=True)
    name.write_text("AMD Instinct MI300X OAM\n")
    machine = profile(probe_script.machine(tmp_path, quick=True))
    assert machine.accelerators == (Accelerator("amd", "AMD Instinct MI300X OAM", "gfx942", 196592),)
    assert machine.gpus == ()
