"""NVIDIA GPUs and their driver, detected: NVML, ``libcuda``, the kernel module and ``CUDA_VISIBLE_DEVICES``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from envsolve.machine.model import Driver, Gpu
from envsolve.system.files import from_json, is_file, is_there, read_stripped
from envsolve.system.processes import ask
from envsolve.values import DriverVersion

# Which GPUs a CUDA program sees: ``CUDA_VISIBLE_DEVICES``, as CUDA reads it. Pure.
# The rules follow the CUDA C++ Programming Guide (section "CUDA Environment Variables"), NVIDIA's MIG user guide,
# and, for malformed lists, the reading that PyTorch's own NVML path (``torch.cuda._parse_visible_devices``) settled on.


_LEADING_INTEGER = re.compile(r"\s*([+-]?\d+)")
_LEGACY_MIG = re.compile(r"MIG-(?P<gpu>GPU-[0-9a-fA-F-]+)/(?P<gi>\d+)/(?P<ci>\d+)")


@dataclass(frozen=True, slots=True)
class Slice:
    """One MIG device as a program sees it, and its (GPU instance, compute instance) ids if known."""

    gpu: Gpu
    instance: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One physical GPU, with its MIG devices where MIG mode is on."""

    gpu: Gpu
    slices: tuple[Slice, ...] = ()

    @property
    def seen(self) -> tuple[Gpu, ...]:
        """The devices that a program can use: the MIG devices if there are any, otherwise the GPU itself."""
        return tuple(part.gpu for part in self.slices) or (self.gpu,)


def visible(devices: Sequence[Device], value: str | None) -> tuple[Gpu, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES=value`` leaves, in its order.

    Args:
        devices: All GPUs, in the order that indices refer to.
        value: The variable; None if it is not set.

    Returns:
        Unset: all. Empty, or invalid from the start (``-1``, ``all``, ``NoDevFiles``): none. Otherwise the devices
        before the first invalid entry: an index out of range, a UUID prefix that fits none or several, an entry of
        another kind than the first. An entry that repeats leaves none at all.
    """
    if value is None:
        return tuple(gpu for device in devices for gpu in device.seen)
    chosen: list[tuple[Gpu, ...]] = []
    kind = _kind(value.strip())
    for entry in (part.strip() for part in value.split(",")):
        found = _pick(devices, entry) if _kind(entry) == kind else None
        if found is None:
            break
        if found in chosen:
            return ()
        chosen.append(found)
    return tuple(gpu for group in chosen for gpu in group)


def order_matters(devices: Sequence[Device], value: str | None, order: str | None) -> bool:
    """Whether indices cannot be read without CUDA itself.

    NVML lists GPUs by PCI bus. CUDA does so only under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; by default it puts the fastest
    first, an order that only the driver knows once the GPUs differ.
    """
    if value is None or order == "PCI_BUS_ID":
        return False
    if _kind(value.strip()) != "index" or _index(value.split(",")[0]) is None:
        return False
    return len({(device.gpu.name, device.gpu.compute_capability) for device in devices}) > 1


def _kind(entry: str) -> str:
    for prefix in ("GPU-", "MIG-"):
        if entry.startswith(prefix):
            return prefix
    return "index"


def _index(entry: str) -> int | None:
    """CUDA reads indices like C's strtol: ``1gpu2`` is 1; a negative one ends the list."""
    match = _LEADING_INTEGER.match(entry)
    index = int(match[1]) if match else -1
    return index if index >= 0 else None


def _pick(devices: Sequence[Device], entry: str) -> tuple[Gpu, ...] | None:
    kind = _kind(entry)
    if kind == "index":
        index = _index(entry)
        return devices[index].seen if index is not None and index < len(devices) else None
    legacy = _LEGACY_MIG.fullmatch(entry)
    if kind == "MIG-" and legacy is None:
        parts = [part.gpu for device in devices for part in device.slices]
        groups: list[tuple[Gpu, ...]] = [(gpu,) for gpu in parts if (gpu.uuid or "").startswith(entry)]
    else:
        prefix = legacy["gpu"] if legacy else entry
        owners = [device for device in devices if (device.gpu.uuid or "").startswith(prefix)]
        groups = _instances(owners, legacy) if legacy else [device.seen for device in owners]
    return groups[0] if len(groups) == 1 else None


def _instances(owners: Sequence[Device], legacy: re.Match[str]) -> list[tuple[Gpu, ...]]:
    wanted = (int(legacy["gi"]), int(legacy["ci"]))
    return [(part.gpu,) for device in owners for part in device.slices if part.instance == wanted]


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """The answers of NVML.

    Attributes:
        driver_version: Of the kernel driver, ``550.54.15``.
        cuda: CUDA version of the ``libcuda`` that NVML loads, ``12.4``: a compat library's, if one is found first.
        devices: GPUs by PCI bus, as this process may use them; None if NVML could not list them.
        error: Why NVML did not answer, in its words; None if it did.
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
    """One GPU; None if this process may not use it (CUDA does not count such a GPU either)."""
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
    """One NVML call; None if NVML refuses it. Each fact is queried separately, so one refusal costs one field."""
    try:
        return function(*arguments)
    except api.NVMLError:
        return None


def _text(value: str | bytes | None) -> str | None:
    """Strings of NVML: older bindings return bytes."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value or None


# The user-mode driver, ``libcuda``: which file the loader takes, its CUDA version, and its view of the GPUs.


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
        path: The file, symbolic links resolved; None if the system does not report it.
        cuda: Its CUDA version, ``12.4``.
        devices: The GPUs that it sees, in CUDA's own order; None if not asked or where CUDA did not start. UUIDs
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
        None if the library is missing, crashes or hangs.
    """
    mode = ["devices"] if devices else []
    # -I and -S: the child must not run code that an environment or a working directory slips in.
    printed = ask([sys.executable, "-I", "-S", str(_SCRIPT), library, *mode], environ, limit=limit)
    try:
        answer = from_json(printed or "", _Answer)
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
    """Version of the loaded kernel driver and the file that has it; None if no driver is loaded."""
    module = root / "sys/module/nvidia/version"
    if match := _MODULE_VERSION.fullmatch(read_stripped(module)):
        return match[0], "/sys/module/nvidia/version"
    if match := _PROC_VERSION.search(read_stripped(root / "proc/driver/nvidia/version")):
        return match[1], "/proc/driver/nvidia/version"
    return None


def gpu_traces(root: Path = Path("/")) -> Iterator[str]:
    """Signs that the host has an NVIDIA GPU, strongest first; without any, it has no GPU."""
    if is_there(root / "sys/module/nvidia") or is_there(root / "proc/driver/nvidia"):
        yield "the nvidia kernel module is loaded"
    for pattern in _NODES:
        if node := next((root / "dev").glob(pattern), None):
            yield f"/dev/{node.name} exists"
    for device in (root / "sys/bus/pci/devices").glob("*"):
        if read_stripped(device / "vendor") == _NVIDIA_VENDOR and read_stripped(device / "class").startswith(
            _DISPLAY_CLASS
        ):
            yield f"PCI device {device.name} is an NVIDIA GPU"


def is_compat(loaded: Libcuda, driver_version: str | None) -> bool:
    """Whether the ``libcuda`` that the loader takes is a cuda-compat library rather than the driver's own.

    The driver's own library carries exactly the kernel driver's version in its file name. Where either is not known
    (WSL and Jetson name the file without it) the directory decides: the cuda-compat packages install into ``compat``.
    """
    if loaded.file_version is not None and driver_version is not None:
        return loaded.file_version != driver_version
    return loaded.path is not None and any("compat" in part for part in PurePosixPath(loaded.path).parts[:-1])


def _branch(version: str | None) -> int:
    return DriverVersion.parse(version or "").branch


def judge_driver(
    version: tuple[str, str] | None, nvml: NvmlAnswer, loaded: Libcuda | None, own: Libcuda | None
) -> tuple[Driver | None, dict[str, str]]:
    """Combine what is known about the driver.

    Args:
        version: Kernel driver version and its source.
        nvml: NVML's answer.
        loaded: The ``libcuda`` that the loader takes.
        own: The driver's own ``libcuda``, asked by path; needed only if ``loaded`` is a compat library.

    Returns:
        The driver and the sources of its fields. ``cuda`` stays None, with a note, if only a compat library
        answered and it is of another branch.
    """
    number = version[0] if version else None
    sources = {} if version is None else {"driver.version": version[1]}
    if loaded is not None and is_compat(loaded, number):
        sources["driver.compat_libcuda"] = f"cuDriverGetVersion of {loaded.path}"
        cuda: str | None
        if own is not None and own.cuda is not None:
            cuda, sources["driver.cuda"] = own.cuda, f"cuDriverGetVersion of {own.path}"
        elif (branch := _branch(number)) and branch == _branch(loaded.file_version):
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
