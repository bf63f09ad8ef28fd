"""Runs in a child process: ask ``libcuda`` for its version and GPUs. Prints one JSON object. Standard library only.

Usage: ``python _ask_libcuda.py LIBRARY [devices]``. A child, because a broken driver library may crash or hang its
process, and because a process that has loaded one ``libcuda`` cannot load another.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from pathlib import Path
from typing import Any

# Values of cuda.h: CUDA_ERROR_NO_DEVICE; CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_NO_DEVICE = 100
_MAJOR, _MINOR = 75, 76


def _mapped_file() -> str | None:
    """The file that the loader took, symbolic links resolved: the kernel's own list of what is mapped."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    paths = (line.split(maxsplit=5)[-1] for line in lines)
    return next((path for path in paths if "/libcuda.so" in path), None)


def _devices(cuda: ctypes.CDLL) -> list[dict[str, Any]] | None:
    status = cuda.cuInit(0)
    if status != 0:
        return [] if status == _NO_DEVICE else None
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None
    return [_device(cuda, index) for index in range(count.value)]


def _device(cuda: ctypes.CDLL, index: int) -> dict[str, Any]:
    device = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), device)
    memory = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    cc = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        cc.append(value.value)
    raw = (ctypes.c_ubyte * 16)()
    # The second form tells MIG devices apart; drivers before CUDA 11.4 have only the first.
    get_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    known = get_uuid(ctypes.byref(raw), device) == 0
    return {
        "name": name.value.decode(errors="replace") or None,
        "compute_capability": f"{cc[0]}.{cc[1]}" if cc[0] else None,
        "memory_mib": memory.value // 2**20 or None,
        "uuid": str(uuid.UUID(bytes=bytes(raw))) if known else None,
    }


def main(library: str, *modes: str) -> None:
    """Load ``library`` and print its file, CUDA version and, if requested, devices."""
    cuda = ctypes.CDLL(library)
    version = ctypes.c_int()
    known = cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
    answer = {
        "path": _mapped_file(),
        "version": version.value if known else None,
        "devices": _devices(cuda) if "devices" in modes else None,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
