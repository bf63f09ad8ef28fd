"""The NVIDIA driver: its library loads, starts, and lists its GPUs.

Without any NVIDIA card there is nothing to check; a card that the driver does not offer is a failure.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path
from unittest import SkipTest

NAME = "driver"
RUNS_ON = "host"
ORDER = 10
NEEDS = ()
VARIABLES = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD")
QUICK = True

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# CUdevice_attribute of cuda.h.
CC_MAJOR, CC_MINOR = 75, 76
# CUresult of cuda.h: CUDA_ERROR_STUB_LIBRARY (a toolkit's stand-in for linking), CUDA_ERROR_NO_DEVICE.
NO_DEVICE = (34, 100)


def check():
    """Start the driver and name its GPUs."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise no_gpu("{} cannot be loaded: {}".format(LIBRARY, error)) from None
    status = cuda.cuInit(0)
    if status in NO_DEVICE:
        raise no_gpu("cuInit failed: {} (error {})".format(message(cuda, status), status))
    expect(cuda, "cuInit", status)
    version, count = ctypes.c_int(), ctypes.c_int()
    expect(cuda, "cuDriverGetVersion", cuda.cuDriverGetVersion(ctypes.byref(version)))
    expect(cuda, "cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    if count.value < 1:
        raise no_gpu("the driver lists no CUDA-capable device")
    devices = [describe(cuda, ordinal) for ordinal in range(count.value)]
    runs = "{}.{}".format(version.value // 1000, version.value % 1000 // 10)
    seen = {"cuda": runs, **versions(kernel_driver(), loaded_library())}
    mode = "; libcuda of cuda-compat" if seen.get("mode") == "compat" else ""
    detail = "CUDA {} driver{}; {}".format(runs, mode, "; ".join(devices))
    return {"detail": detail, "devices": devices, "seen": seen}


def versions(kernel, library):
    """Tell the driver's own libcuda, which has exactly the kernel driver's version in its name, from cuda-compat's."""
    seen = {name: value for name, value in (("kernel_driver", kernel), ("libcuda", library)) if value}
    named = re.search(r"\.so\.(\d{3,}(?:\.\d+)+)$", library or "")
    if kernel and named:  # WSL and Jetson name the file without it.
        seen["mode"] = "native" if named.group(1) == kernel else "compat"
    return seen


def kernel_driver():
    """The version of the kernel's driver; None where it does not say."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    match = re.search(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d{3,}(?:\.\d+)+)", text)
    return match.group(1) if match else None


def loaded_library():
    """The file of the libcuda that this process has loaded; None where the system does not say."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    return next((line.split(None, 5)[5] for line in lines if "/libcuda.so" in line), None)


def describe(cuda, ordinal):
    """Name one GPU: ``NVIDIA H100 80GB HBM3 (cc 9.0)``."""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    expect(cuda, "cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    expect(cuda, "cuDeviceGetName", cuda.cuDeviceGetName(name, len(name), device))
    capability = []
    for attribute in (CC_MAJOR, CC_MINOR):
        value = ctypes.c_int()
        expect(cuda, "cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device))
        capability.append(value.value)
    return "{} (cc {}.{})".format(name.value.decode(errors="replace"), *capability)


def no_gpu(problem):
    """Judge the lack of a usable GPU: a failure where there is an NVIDIA card to be used."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    # What stands behind the first number that is none is not looked at.
    if hidden is not None and hidden.split(",")[0].strip() in ("", "-1"):
        return SkipTest("{}; CUDA_VISIBLE_DEVICES={!r} hides every GPU".format(problem, hidden))
    card = nvidia_card()
    if card:
        return RuntimeError("{}, although there is an NVIDIA card ({})".format(problem, card))
    return SkipTest("{}; this machine has no NVIDIA card".format(problem))


def nvidia_card():
    """Find a sign of an NVIDIA GPU that needs no driver: a device node (WSL and Jetson too) or a PCI display device."""
    for pattern in ("nvidia[0-9]*", "dxg", "nvhost-gpu"):
        for node in Path("/dev").glob(pattern):
            return str(node)
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text()
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):
            return "PCI " + device.name
    return None


def expect(cuda, call, status):
    """Fail unless a driver call succeeded."""
    if status:
        raise RuntimeError("{} failed: {} (error {})".format(call, message(cuda, status), status))


def message(cuda, status):
    """Put a CUresult into the driver's own words."""
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(status, ctypes.byref(text))
    return (text.value or b"unknown error").decode(errors="replace")
