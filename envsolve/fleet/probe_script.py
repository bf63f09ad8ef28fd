"""Print the machine that runs this file, as one line of ``envsolve.machine/2`` JSON.

The file is copied to nodes where nothing is installed: it runs on Python 3.6, imports the standard library only, and
writes nothing. Besides the fields of a machine it prints ``node``, the node's name, and ``faults``, what its driver
says is broken. With ``--quick`` it leaves out compilers, toolkits and Pythons.
"""

import ctypes
import json
import os
import platform
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

SCHEMA = "envsolve.machine/2"
# A driver that hangs blocks every call into it for good, so the calls are made in a child that can be killed.
DRIVER_SECONDS = 30.0
PROGRAM_SECONDS = 10.0
_NO_PERMISSION, _GPU_IS_LOST = 4, 15  # nvml.h
_UNCORRECTED, _SINCE_BOOT = 1, 0  # nvml.h: NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
_VERSION = "import sys; sys.stdout.write('%d.%d.%d' % sys.version_info[:3])"
_PROCESSORS = {"amd64": "x86_64", "arm64": "aarch64"}


def machine(root: Path = Path("/"), quick: bool = False) -> Dict[str, Any]:
    """Return this machine as the JSON of ``envsolve detect``; None for what is not known."""
    nvidia = in_child(read_nvml, DRIVER_SECONDS)
    version, source = nvidia.get("driver"), "nvml"
    if version is None:
        version, source = kernel_driver(root)
    # With a cuda-compat library on the loader's path, NVML reports the CUDA version of that library.
    compat = any("compat" in entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    gpus = nvidia.get("gpus")
    why = "nvml"
    if gpus is None:
        trace = next(gpu_traces(root), None)
        gpus = None if trace else []
        why = "unknown: {}, and {}".format(trace, nvidia["error"]) if trace else nvidia["error"]
    amd = list(amd_gpus(root))
    own = [dict(gpu, vendor="nvidia", arch=gpu["compute_capability"]) for gpu in gpus or ()]
    for gpu in own:
        del gpu["compute_capability"]
    found: Dict[str, Any] = {
        "schema": SCHEMA,
        "node": os.environ.get("ENVSOLVE_NODE") or os.environ.get("SLURMD_NODENAME") or platform.node(),
        "faults": nvidia.get("faults", []),
        "platform": read_platform(root),
        "driver": {"version": version, "cuda": None if compat else nvidia.get("cuda")} if version else None,
        "gpus": gpus,
        "accelerators": None if gpus is None and not amd else own + amd,
        "sources": {"gpus": why, "driver": source, "platform": "fleet probe"},
    }
    if not quick:
        found["toolkits"] = list(toolkits(root))
        found["host_compilers"] = list(compilers())
        found["pythons"] = list(pythons())
    return found


def read_text(path: Path) -> str:
    """Return the text of a file of the system, empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def ask(*command: str) -> str:
    """Return what a program prints, empty if it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROGRAM_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


# The platform.


def read_platform(root: Path) -> Dict[str, Any]:
    """Return the operating system side of the machine."""
    arch = platform.machine().lower()
    release = read_text(root / "etc/os-release") or read_text(root / "usr/lib/os-release")
    fields = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', release, re.MULTILINE))
    return {
        "os": platform.system().lower(),
        "arch": _PROCESSORS.get(arch, arch),
        "libc": libc(root),
        "distro": " ".join(filter(None, (fields.get("ID"), fields.get("VERSION_ID")))) or None,
        "wsl": "microsoft" in read_text(root / "proc/sys/kernel/osrelease").lower(),
        "container": container(root),
        "jetson": jetson(root),
    }


def libc(root: Path) -> Optional[str]:
    """Return ``glibc 2.35`` or ``musl 1.2``."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        text = None
    if text:
        return text
    for loader in sorted((root / "lib").glob("ld-musl-*.so.1")):
        match = re.search(r"^Version (\d+\.\d+)", ask("/bin/sh", "-c", '"$0" 2>&1; :', str(loader)), re.MULTILINE)
        if match:
            return "musl " + match.group(1)
    return None


def container(root: Path) -> Optional[str]:
    """Return the container runtime around this process, None without a sign of one."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    marks = (
        (".singularity.d", "apptainer"),
        ("run/.containerenv", "podman"),
        (".dockerenv", "docker"),
    )
    return next((name for mark, name in marks if (root / mark).exists()), None)


def jetson(root: Path) -> Optional[str]:
    """Return the L4T release of a Jetson, ``36.3``."""
    match = re.search(r"R(\d+)\s*\(release\),\s*REVISION:\s*(\d+(?:\.\d+)*)", read_text(root / "etc/nv_tegra_release"))
    if not match:
        return None
    minor = match.group(2)
    return match.group(1) + "." + (minor[:-2] if minor.endswith(".0") else minor)


# GPUs of NVIDIA, through NVML.


def in_child(question: Callable[[], Dict[str, Any]], limit: float) -> Dict[str, Any]:
    """Return the answer of a function that may crash or hang; otherwise ``error`` says which."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(question()).encode())
        except BaseException as error:
            os.write(writer, json.dumps({"error": "NVML: {}".format(error)}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    data = b""
    try:
        while select.select([reader], [], [], limit)[0]:
            part = os.read(reader, 65536)
            if not part:
                break
            data += part
        else:
            # One that is stuck in the kernel does not die; it must not keep this process waiting.
            os.kill(child, signal.SIGKILL)
            return {"error": "the driver does not answer within {:.0f} s".format(limit)}
        os.waitpid(child, 0)
    finally:
        os.close(reader)
    try:
        found = json.loads(data.decode())
    except ValueError:
        return {"error": "the driver's library crashed"}
    return found if isinstance(found, dict) else {"error": "NVML: no answer"}


class _RefusedError(Exception):
    """NVML refused a call, with its code."""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    """The calls into NVML that the probe makes; each returns None if NVML refuses it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of NVML.

        Raises:
            _RefusedError: It refused, or this driver has no such function.
        """
        function = getattr(self._library, name, None)
        if function is None:
            raise _RefusedError(0)
        code = function(*arguments)
        if code != 0:
            raise _RefusedError(code)

    def text(self, name: str, *arguments: Any) -> Optional[str]:
        """Return a string."""
        buffer = ctypes.create_string_buffer(96)
        try:
            self.call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        except _RefusedError:
            return None
        return buffer.value.decode("utf-8", "replace") or None

    def numbers(self, name: str, kinds: Tuple[Any, ...], *arguments: Any) -> Optional[Tuple[int, ...]]:
        """Return numbers of the given C types."""
        values = [kind() for kind in kinds]
        try:
            self.call(name, *arguments, *[ctypes.byref(value) for value in values])
        except _RefusedError:
            return None
        return tuple(int(value.value) for value in values)


def read_nvml() -> Dict[str, Any]:
    """Return driver, CUDA version, GPUs and faults, or ``error``."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {"error": "NVML is not installed"}
    nvml = Nvml(library)
    try:
        nvml.call("nvmlInit_v2")
    except _RefusedError as refused:
        return {"error": "NVML: error {}".format(refused)}
    number = (nvml.numbers("nvmlSystemGetCudaDriverVersion_v2", (ctypes.c_int,)) or (0,))[0]
    count = nvml.numbers("nvmlDeviceGetCount_v2", (ctypes.c_uint,))
    found: Dict[str, Any] = {
        "driver": nvml.text("nvmlSystemGetDriverVersion"),
        "cuda": "{}.{}".format(number // 1000, number % 1000 // 10) if number else None,
        "faults": [],
        "error": "NVML does not list the GPUs",
    }
    if count is not None:
        found["gpus"] = []
        for index in range(count[0]):
            nvidia_gpus(nvml, index, found)
    return found


def nvidia_gpus(nvml: Nvml, index: int, found: Dict[str, Any]) -> None:
    """Add a GPU, or its MIG devices, to what was found."""
    handle = ctypes.c_void_p()
    try:
        nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    except _RefusedError as refused:
        # A device cgroup (Slurm's ConstrainDevices) hides GPUs in this way: they are not this job's.
        if refused.args[0] != _NO_PERMISSION:
            lost = "is lost" if refused.args[0] == _GPU_IS_LOST else "answers with error {}".format(refused)
            found["faults"].append("GPU {} {}".format(index, lost))
            found["gpus"].append(dict.fromkeys(("name", "compute_capability", "memory_mib", "mig", "uuid")))
        return
    capability = nvml.numbers("nvmlDeviceGetCudaComputeCapability", (ctypes.c_int, ctypes.c_int), handle)
    mode = nvml.numbers("nvmlDeviceGetMigMode", (ctypes.c_uint, ctypes.c_uint), handle)
    errors = nvml.numbers(
        "nvmlDeviceGetTotalEccErrors",
        (ctypes.c_ulonglong,),
        handle,
        ctypes.c_int(_UNCORRECTED),
        ctypes.c_int(_SINCE_BOOT),
    )
    if errors and errors[0]:
        found["faults"].append("GPU {} has {} uncorrected ECC errors since it was reset".format(index, errors[0]))
    parts: List[Any] = []
    if mode and mode[0]:
        most = nvml.numbers("nvmlDeviceGetMaxMigDeviceCount", (ctypes.c_uint,), handle) or (0,)
        for place in range(most[0]):
            part = ctypes.c_void_p()
            try:
                nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(place), ctypes.byref(part))
            except _RefusedError:
                continue  # the places for MIG devices are sparse
            parts.append(part)
    for part in parts or [handle]:
        memory = _Memory()
        try:
            nvml.call("nvmlDeviceGetMemoryInfo", part, ctypes.byref(memory))
        except _RefusedError:
            memory.total = 0
        found["gpus"].append(
            {
                "name": nvml.text("nvmlDeviceGetName", part),
                "compute_capability": "{}.{}".format(*capability) if capability else None,
                "memory_mib": memory.total // 2**20 or None,
                "mig": bool(mode[0]) if mode else False,
                "uuid": nvml.text("nvmlDeviceGetUUID", part),
            }
        )


def kernel_driver(root: Path) -> Tuple[Optional[str], str]:
    """Return the version of the loaded kernel driver, and the file that says it."""
    for name in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        match = re.search(r"\b(\d{3,}(?:\.\d+)+)\b", read_text(root / name))
        if match:
            return match.group(1), "/" + name
    return None, "no kernel driver found"


def gpu_traces(root: Path) -> Iterator[str]:
    """Yield signs of a GPU of NVIDIA; without any there is none."""
    if (root / "sys/module/nvidia").exists() or (root / "proc/driver/nvidia").exists():
        yield "the nvidia kernel module is loaded"
    for node in (root / "dev").glob("nvidia[0-9]*"):
        yield "/dev/{} exists".format(node.name)
    for device in (root / "sys/bus/pci/devices").glob("*"):
        # The vendor's number, and the class of display controllers.
        if read_text(device / "vendor") == "0x10de" and read_text(device / "class").startswith("0x03"):
            yield "PCI device {} is an NVIDIA GPU".format(device.name)


# GPUs of AMD, through the kernel: the files of amdkfd.


def amd_gpus(root: Path) -> Iterator[Dict[str, Any]]:
    """Yield AMD's GPUs that run compute kernels."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    for node in sorted(nodes.glob("*"), key=lambda path: (len(path.name), path.name)):
        facts = dict(re.findall(r"^(\w+) (\d+)$", read_text(node / "properties"), re.MULTILINE))
        version = int(facts.get("gfx_target_version", 0))
        if not version:
            continue  # a CPU
        banks = "\n".join(read_text(bank) for bank in node.glob("mem_banks/*/properties"))
        memory = sum(map(int, re.findall(r"^size_in_bytes (\d+)$", banks, re.MULTILINE)))
        minor = facts.get("drm_render_minor", "")
        name = read_text(root / "sys/class/drm/renderD{}/device/product_name".format(minor))
        # 90402 is gfx942: decimal major and minor, the stepping as a hexadecimal digit.
        arch = "gfx{}{}{:x}".format(version // 10000, version // 100 % 100, version % 100)
        yield {"vendor": "amd", "name": name or None, "arch": arch, "memory_mib": memory // 2**20 or None}


# What compiles: toolkits, compilers, Pythons.


def programs(pattern: str) -> Iterator[Path]:
    """Yield the programs on PATH whose whole name matches, each file once."""
    seen = set()
    for folder in filter(None, os.environ.get("PATH", "").split(":")):
        try:
            found = sorted(path for path in Path(folder).iterdir() if re.match(pattern + "$", path.name))
        except OSError:
            continue
        for path in found:
            real = os.path.realpath(str(path))
            if real not in seen and os.access(real, os.X_OK) and Path(real).is_file():
                seen.add(real)
                yield path


def toolkits(root: Path) -> Iterator[Dict[str, Any]]:
    """Yield the toolkits in their usual directories and on PATH."""
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    homes += [Path(os.path.realpath(str(path))).parent.parent for path in programs("nvcc")]
    homes += sorted((root / "usr/local").glob("cuda*"))
    seen = set()
    for home in (os.path.realpath(str(home)) for home in homes):
        compiler = home + "/bin/nvcc"
        if home in seen or not os.access(compiler, os.X_OK):
            continue
        seen.add(home)
        release = re.search(r"\brelease (\d+\.\d+)", ask(compiler, "--version"))
        yield {"version": release.group(1) if release else None, "path": home, "nvcc": True}


def compilers() -> Iterator[Dict[str, Any]]:
    """Yield the C and C++ compilers."""
    for path in programs(r"(gcc|g\+\+|clang|clang\+\+)(-\d+)?"):
        printed = ask(str(path), "--version")
        clang = re.search(r"clang version (\d+(?:\.\d+)*)", printed)
        if clang:
            yield {"kind": "clang", "version": clang.group(1), "path": str(path)}
        elif printed:
            version = ask(str(path), "-dumpfullversion", "-dumpversion").strip()
            yield {"kind": "gcc", "version": version or None, "path": str(path)}


def pythons() -> Iterator[Dict[str, str]]:
    """Yield the Pythons."""
    for path in programs(r"python3(\.\d+)?"):
        version = ask(str(path), "-E", "-S", "-c", _VERSION)
        if re.match(r"\d+\.\d+\.\d+$", version):
            yield {"version": version, "path": str(path)}


if __name__ == "__main__":
    print(json.dumps(machine(quick="--quick" in sys.argv), sort_keys=True))
