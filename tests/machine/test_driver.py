from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from envsolve.machine.model import Driver, Gpu
from envsolve.machine.nvidia import (
    Libcuda,
    NvmlAnswer,
    ask_libcuda,
    gpu_traces,
    is_compat,
    judge_driver,
    kernel_driver,
    own_library,
)

PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
)
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@host)\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"sys/module/nvidia/version": "550.54.15\n"}, ("550.54.15", "/sys/module/nvidia/version")),
        ({"proc/driver/nvidia/version": PROPRIETARY}, ("535.104.05", "/proc/driver/nvidia/version")),
        ({"proc/driver/nvidia/version": OPEN}, ("580.95.05", "/proc/driver/nvidia/version")),
        ({"proc/driver/nvidia/version": "garbage"}, None),
        (
            {"sys/module/nvidia/version": "", "proc/driver/nvidia/version": OPEN},
            ("580.95.05", "/proc/driver/nvidia/version"),
        ),
    ],
)
def test_kernel_driver(tmp_path: Path, files: dict[str, str], found: tuple[str, str] | None) -> None:
    assert kernel_driver(tree(tmp_path, files)) == found


@pytest.mark.parametrize(
    ("files", "traced"),
    [
        ({}, False),
        ({"dev/null": ""}, False),
        ({"dev/nvidia0": ""}, True),
        ({"dev/dxg": ""}, True),
        ({"dev/nvgpu": ""}, True),
        ({"sys/module/nvidia/version": "550.54.15"}, True),
        (
            {
                "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
                "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
            },
            True,
        ),
        # The audio function of a card that was passed through to nobody, and another vendor's display.
        (
            {
                "sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n",
                "sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n",
            },
            False,
        ),
        (
            {
                "sys/bus/pci/devices/0000:02:00.0/vendor": "0x1002\n",
                "sys/bus/pci/devices/0000:02:00.0/class": "0x030000\n",
            },
            False,
        ),
    ],
)
def test_traces_of_a_gpu(tmp_path: Path, files: dict[str, str], traced: bool) -> None:
    assert bool(list(gpu_traces(tree(tmp_path, files)))) is traced


@pytest.mark.parametrize(
    ("path", "driver", "compat"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", "550.54.15", False),
        ("/usr/local/cuda-13.0/compat/libcuda.so.580.65.06", "550.54.15", True),
        ("/opt/elsewhere/libcuda.so.580.65.06", "550.54.15", True),
        ("/usr/local/cuda/compat/libcuda.so.580.95.05", "580.159.03", True),
        # A driver installed again without a reboot leaves its own library in a plain folder: it does not match either.
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.550.90.07", "550.54.15", True),
        ("/usr/lib/wsl/lib/libcuda.so.1.1", "551.86", False),
        ("/usr/local/cuda/compat/libcuda.so.1.1", "540.3.0", True),
        ("/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1", "540.3.0", False),
        ("/usr/local/cuda-13.0/compat/libcuda.so.580.65.06", None, True),
        (None, "550.54.15", False),
    ],
)
def test_compat_libraries(path: str | None, driver: str | None, compat: bool) -> None:
    assert is_compat(Libcuda(path, "13.0"), driver) is compat


OWN = Libcuda("/usr/lib/libcuda.so.550.54.15", "12.4")
COMPAT = Libcuda("/usr/local/cuda/compat/libcuda.so.580.65.06", "13.0")
SAME_BRANCH = Libcuda("/usr/local/cuda/compat/libcuda.so.550.90.07", "12.4")
VERSION = ("550.54.15", "nvml")


@pytest.mark.parametrize(
    ("version", "nvml", "loaded", "own", "driver"),
    [
        (None, NvmlAnswer(error="x"), None, None, None),
        (VERSION, NvmlAnswer("550.54.15", "12.4"), OWN, None, Driver("550.54.15", "12.4")),
        (VERSION, NvmlAnswer("550.54.15", "12.4"), None, None, Driver("550.54.15", "12.4")),
        (VERSION, NvmlAnswer(error="x"), OWN, None, Driver("550.54.15", "12.4")),
        (VERSION, NvmlAnswer(error="x"), None, None, Driver("550.54.15")),
        # NVML answers with the compat library's version: it is not the driver's.
        (VERSION, NvmlAnswer("550.54.15", "13.0"), COMPAT, None, Driver("550.54.15", None, "13.0")),
        (VERSION, NvmlAnswer("550.54.15", "13.0"), COMPAT, OWN, Driver("550.54.15", "12.4", "13.0")),
        (VERSION, NvmlAnswer("550.54.15", "12.4"), SAME_BRANCH, None, Driver("550.54.15", "12.4", "12.4")),
        # A library without a driver, as in an image that is built elsewhere.
        (None, NvmlAnswer(error="x"), COMPAT, None, Driver(None, None, "13.0")),
        (None, NvmlAnswer(error="x"), OWN, None, Driver(None, "12.4")),
    ],
)
def test_the_drivers_own_cuda_version(
    version: tuple[str, str] | None,
    nvml: NvmlAnswer,
    loaded: Libcuda | None,
    own: Libcuda | None,
    driver: Driver | None,
) -> None:
    found, sources = judge_driver(version, nvml, loaded, own)
    assert found == driver
    for name in ("version", "cuda", "compat_libcuda"):
        if found is not None and getattr(found, name) is not None:
            assert f"driver.{name}" in sources


SOURCE = """
#include <string.h>
int cuDriverGetVersion(int *v) { *v = VERSION; return 0; }
int cuInit(unsigned f) { return INIT; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *b, int n, int d) { strcpy(b, "NVIDIA GB10"); return 0; }
int cuDeviceTotalMem_v2(unsigned long *m, int d) { *m = 1024ul << 20; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 12 : 1; return 0; }
int cuDeviceGetUuid_v2(unsigned char *u, int d) { memset(u, 0xab, 16); return 0; }
"""
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def library(folder: Path, file: str, *, version: int, init: int = 0, source: str = SOURCE) -> dict[str, str]:
    """A real shared library in ``folder`` and the environment under which the loader finds it."""
    folder.mkdir(parents=True)
    code = folder / "cuda.c"
    code.write_text(source)
    flags = [f"-DVERSION={version}", f"-DINIT={init}", "-shared", "-fPIC", "-w"]
    subprocess.run(["cc", *flags, "-Wl,-soname,libcuda.so.1", "-o", folder / file, code], check=True)
    (folder / "libcuda.so.1").symlink_to(file)
    return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder)}


@needs_compiler
def test_the_loaders_own_choice_is_asked(tmp_path: Path) -> None:
    environ = library(tmp_path / "compat", "libcuda.so.580.65.06", version=13000)
    loaded = ask_libcuda(environ)
    assert loaded is not None
    assert (loaded.cuda, loaded.file_version, loaded.devices) == ("13.0", "580.65.06", None)
    assert loaded.path == str(tmp_path.resolve() / "compat/libcuda.so.580.65.06")


@needs_compiler
def test_devices_of_a_machine_without_nvml(tmp_path: Path) -> None:
    environ = library(tmp_path / "lib", "libcuda.so.1.1", version=13000)
    loaded = ask_libcuda(environ, devices=True)
    assert loaded is not None and loaded.file_version is None
    assert loaded.devices == (Gpu("NVIDIA GB10", "12.1", 1024, None, "abababab-abab-abab-abab-abababababab"),)


@needs_compiler
@pytest.mark.parametrize(("code", "devices"), [(100, ()), (803, None)])
def test_cuda_that_does_not_start(tmp_path: Path, code: int, devices: tuple[Gpu, ...] | None) -> None:
    environ = library(tmp_path / "lib", "libcuda.so.550.54.15", version=12040, init=code)
    loaded = ask_libcuda(environ, devices=True)
    assert loaded is not None and loaded.devices == devices and loaded.cuda == "12.4"


@needs_compiler
@pytest.mark.parametrize("body", ["*(volatile int *)0 = 0;", "for (;;) {}"], ids=["crash", "hang"])
def test_a_broken_library_is_silence(tmp_path: Path, body: str) -> None:
    source = f"int cuDriverGetVersion(int *v) {{ {body} return 0; }}"
    environ = library(tmp_path / "lib", "libcuda.so.550.54.15", version=0, source=source)
    assert ask_libcuda(environ, limit=1.0) is None


@needs_compiler
def test_the_drivers_own_library_is_found_and_asked_by_path(tmp_path: Path) -> None:
    environ = library(tmp_path / "compat", "libcuda.so.580.65.06", version=13000)
    library(tmp_path / "usr/lib64", "libcuda.so.550.54.15", version=12040)
    path = own_library("550.54.15", environ, root=tmp_path)
    assert path == tmp_path / "usr/lib64/libcuda.so.550.54.15"
    own = ask_libcuda(environ, library=str(path))
    assert own is not None and own.cuda == "12.4" and own.file_version == "550.54.15"


def test_no_library() -> None:
    assert ask_libcuda({}, library="libcuda-that-is-not.so.1") is None
    assert own_library("550.54.15", {}, root=Path("/nonexistent")) is None
