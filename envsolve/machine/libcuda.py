"""The user-mode driver, ``libcuda``: which file the loader takes, its CUDA version, and its view of the GPUs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from envsolve.files import is_file
from envsolve.machine.model import Gpu
from envsolve.machine.nvml import cuda_version
from envsolve.processes import ask

SONAME = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

_SCRIPT = Path(__file__).with_name("_ask_libcuda.py")
_FILE_VERSION = re.compile(r"libcuda\.so\.(\d{3,}(?:\.\d+)+)")

_DRIVER_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib64/nvidia",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)
"""Where distributions, container runtimes, cluster device plug-ins and NixOS put the driver's libraries."""


class _Answer(msgspec.Struct, frozen=True):
    path: str | None
    version: int | None
    devices: tuple[Gpu, ...] | None


@dataclass(frozen=True, slots=True)
class Libcuda:
    """A loaded ``libcuda``.

    Attributes:
        path: The file, symbolic links resolved; None where the system does not tell.
        cuda: Its CUDA version, ``12.4``.
        devices: The GPUs that it sees, in CUDA's own order; None where not asked or where CUDA did not start. UUIDs
            have no ``GPU-`` or ``MIG-`` prefix.
    """

    path: str | None
    cuda: str | None
    devices: tuple[Gpu, ...] | None = None

    @property
    def file_version(self) -> str | None:
        """The driver version in the file name (``libcuda.so.550.54.15``); None on WSL and Jetson, which carry none."""
        match = _FILE_VERSION.fullmatch(Path(self.path).name) if self.path else None
        return match[1] if match else None


def ask_libcuda(
    environ: Mapping[str, str], *, library: str = SONAME, devices: bool = False, limit: float = 5.0
) -> Libcuda | None:
    """Load ``library`` in a child process, found as the loader finds it under ``environ``, and ask it.

    Args:
        environ: Environment of the child: ``LD_LIBRARY_PATH`` and ``CUDA_VISIBLE_DEVICES`` have their usual effect.
        library: A name that the loader searches for, or a path.
        devices: Whether to start CUDA and list the GPUs, which is slow (about a second on a large machine).
        limit: Seconds.

    Returns:
        None where there is no such library, or where it crashes or hangs.
    """
    mode = ["devices"] if devices else []
    # -I and -S: the child must not run code that an environment or a working directory slips in.
    printed = ask([sys.executable, "-I", "-S", str(_SCRIPT), library, *mode], environ, limit=limit)
    try:
        answer = msgspec.json.decode(printed or "", type=_Answer)
    except msgspec.MsgspecError:
        return None
    return Libcuda(answer.path, cuda_version(answer.version), answer.devices)


def own_library(driver_version: str, environ: Mapping[str, str], *, root: Path = Path("/")) -> Path | None:
    """The file ``libcuda.so.<driver_version>`` that belongs to the kernel driver, wherever the loader would look."""
    from_environ = [entry for entry in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry]
    for folder in (*from_environ, *_DRIVER_FOLDERS):
        path = root / folder.lstrip("/") / f"libcuda.so.{driver_version}"
        if is_file(path):
            return path
    return None
