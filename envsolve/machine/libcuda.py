"""The user-mode driver, ``libcuda``: which file the loader takes, its CUDA version, and its view of the GPUs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from envsolve.machine.model import Driver, Gpu
from envsolve.machine.nvidia import NvmlAnswer, cuda_version
from envsolve.system.files import is_file, is_there
from envsolve.system.processes import ask

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


# The kernel driver: its version where NVML is silent, and its own CUDA version told apart from a compat library's.


_PROC_VERSION = re.compile(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d{3,}(?:\.\d+)+)")
_MODULE_VERSION = re.compile(r"\d{3,}(?:\.\d+)+")
# Desktop and server GPUs, WSL's paravirtual GPU, Jetson's two generations of GPU nodes.
_NODES = ("nvidia[0-9]*", "nvidiactl", "dxg", "nvgpu", "nvhost-gpu", "nvmap")
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"


def kernel_driver(root: Path = Path("/")) -> tuple[str, str] | None:
    """Version of the loaded kernel driver and the file that tells it; None where no driver is loaded."""
    module = root / "sys/module/nvidia/version"
    if match := _MODULE_VERSION.fullmatch(_read(module)):
        return match[0], "/sys/module/nvidia/version"
    if match := _PROC_VERSION.search(_read(root / "proc/driver/nvidia/version")):
        return match[1], "/proc/driver/nvidia/version"
    return None


def gpu_traces(root: Path = Path("/")) -> Iterator[str]:
    """Signs that the host has an NVIDIA GPU, strongest first; none at all means that there is no GPU."""
    if is_there(root / "sys/module/nvidia") or is_there(root / "proc/driver/nvidia"):
        yield "the nvidia kernel module is loaded"
    for pattern in _NODES:
        if node := next((root / "dev").glob(pattern), None):
            yield f"/dev/{node.name} exists"
    for device in (root / "sys/bus/pci/devices").glob("*"):
        if _read(device / "vendor") == _NVIDIA_VENDOR and _read(device / "class").startswith(_DISPLAY_CLASS):
            yield f"PCI device {device.name} is an NVIDIA GPU"


def is_compat(loaded: Libcuda, driver_version: str | None) -> bool:
    """Whether the ``libcuda`` that the loader takes is a cuda-compat library rather than the driver's own.

    The driver's own library carries exactly the kernel driver's version in its file name. Where either is not known
    (WSL and Jetson name the file without it) the folder decides: the cuda-compat packages install into ``compat``.
    """
    if loaded.file_version is not None and driver_version is not None:
        return loaded.file_version != driver_version
    return loaded.path is not None and any("compat" in part for part in PurePosixPath(loaded.path).parts[:-1])


def judge_driver(
    version: tuple[str, str] | None, nvml: NvmlAnswer, loaded: Libcuda | None, own: Libcuda | None
) -> tuple[Driver | None, dict[str, str]]:
    """Put together what is known of the driver.

    Args:
        version: Kernel driver version and its source.
        nvml: NVML's answer.
        loaded: The ``libcuda`` that the loader takes.
        own: The driver's own ``libcuda``, asked by path; needed only where ``loaded`` is a compat library.

    Returns:
        The driver and the sources of its fields. ``cuda`` stays None, with a note, where only a compat library
        answered and it is of another branch.
    """
    number = version[0] if version else None
    sources = {} if version is None else {"driver.version": version[1]}
    if loaded is not None and is_compat(loaded, number):
        sources["driver.compat_libcuda"] = f"cuDriverGetVersion of {loaded.path}"
        cuda: str | None
        if own is not None and own.cuda is not None:
            cuda, sources["driver.cuda"] = own.cuda, f"cuDriverGetVersion of {own.path}"
        elif number and loaded.file_version and branch(number) == branch(loaded.file_version):
            cuda, sources["driver.cuda"] = loaded.cuda, "compat libcuda of the driver's own branch"
        else:
            cuda, sources["driver.cuda"] = None, f"unknown: the loader finds a compat library first, {loaded.path}"
        return Driver(number, cuda, loaded.cuda), sources
    if nvml.cuda is not None:
        sources["driver.cuda"] = "nvml"
        return Driver(number, nvml.cuda), sources
    if loaded is not None and loaded.cuda is not None:
        sources["driver.cuda"] = f"cuDriverGetVersion of {loaded.path or 'libcuda'}"
        return Driver(number, loaded.cuda), sources
    return (Driver(number) if number else None), sources


def branch(version: str) -> str:
    """The branch of a driver version: ``550`` for ``550.54.15``."""
    return version.partition(".")[0]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
