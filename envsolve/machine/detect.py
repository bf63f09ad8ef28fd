"""Reading this machine: all sources in parallel, joined into one value."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from envsolve.machine.model import Gpu, Interpreter, Machine, Platform
from envsolve.machine.nvidia import (
    Device,
    Libcuda,
    NvmlAnswer,
    ask_libcuda,
    gpu_traces,
    is_compat,
    judge_driver,
    kernel_driver,
    order_matters,
    own_library,
    read_nvml,
    visible,
)
from envsolve.machine.tools import (
    find_compilers,
    find_installers,
    find_interpreters,
    find_toolkits,
    folders,
    read_compiler,
    read_installer,
    read_interpreter,
    read_toolkit,
    running_interpreter,
)
from envsolve.system.files import is_there, read_stripped, real_path
from envsolve.system.processes import ask
from envsolve.values import processor

# The operating system side of a machine: OS, architecture, C library, distribution, and what it runs inside.


_MUSL_VERSION = re.compile(r"^Version (\d+\.\d+)", re.MULTILINE)
_TEGRA_RELEASE = re.compile(r"R(\d+)\s*\(release\),\s*REVISION:\s*(\d+(?:\.\d+)*)")
_CGROUP_RUNTIMES = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("lxc", "lxc"))

Finding = tuple[str | None, str]
"""A value and where it was read."""


def read_platform(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> tuple[Platform, dict[str, str]]:
    """Read the platform of this host, with the source of each field."""
    system = platform.system().lower()
    findings: dict[str, Finding] = {
        "os": (system or None, "uname"),
        "arch": (processor(platform.machine()) or None, "uname"),
    }
    wsl = False
    if system == "linux":
        wsl = is_wsl(root)
        findings["libc"] = libc(root, environ)
        findings["distro"] = distro(root)
        findings["container"] = container(root, environ)
        findings["jetson"] = jetson(root)
    value = Platform(**{name: text for name, (text, _) in findings.items()}, wsl=wsl)
    sources = {f"platform.{name}": source for name, (_, source) in findings.items()}
    return value, {**sources, "platform.wsl": "/proc/sys/kernel/osrelease" if system == "linux" else "uname"}


def _confstr(name: str) -> str | None:
    return os.confstr(name) if hasattr(os, "confstr") else None


def libc(root: Path, environ: Mapping[str, str], confstr: Callable[[str], str | None] = _confstr) -> Finding:
    """``glibc 2.35`` or ``musl 1.2``: glibc answers ``confstr``; musl's loader prints its version when run."""
    try:
        text = confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        text = None
    if text:
        return text, "confstr(CS_GNU_LIBC_VERSION)"
    for loader in sorted((root / "lib").glob("ld-musl-*.so.1")):
        # The loader prints its version as part of a usage error and fails: a shell turns that into text.
        printed = ask(["/bin/sh", "-c", '"$0" 2>&1; :', str(loader)], environ)
        if match := _MUSL_VERSION.search(printed or ""):
            return f"musl {match[1]}", f"/lib/{loader.name}"
    return None, "neither glibc nor a musl loader was found"


def distro(root: Path) -> Finding:
    """``ubuntu 22.04``: ID and, if present, VERSION_ID of os-release."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            text = (root / name).read_text(errors="replace")
            words = shlex.split(text, comments=True)
        except (OSError, ValueError):
            continue
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        if "ID" in fields:
            return " ".join(filter(None, (fields["ID"], fields.get("VERSION_ID")))), f"/{name}"
    return None, "no os-release file"


def is_wsl(root: Path) -> bool:
    """Whether the kernel is that of Windows Subsystem for Linux (also seen from containers on it)."""
    return "microsoft" in read_stripped(root / "proc/sys/kernel/osrelease").lower()


def container(root: Path, environ: Mapping[str, str]) -> Finding:
    """The container runtime around this process, most specific sign first; None without any sign."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes", "KUBERNETES_SERVICE_HOST"
    for variable in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if variable in environ:
            return "apptainer", variable
    for file, runtime in (
        ("var/run/secrets/kubernetes.io", "kubernetes"),
        (".singularity.d", "apptainer"),
        ("run/.containerenv", "podman"),
        (".dockerenv", "docker"),
    ):
        if is_there(root / file):
            return runtime, f"/{file}"
    for text, source in (
        (environ.get("container", ""), "container (environment)"),
        (read_stripped(root / "run/systemd/container"), "/run/systemd/container"),
    ):
        if text:
            return text.strip().lower(), source
    groups = read_stripped(root / "proc/1/cgroup")
    for word, runtime in _CGROUP_RUNTIMES:
        if word in groups:
            return runtime, "/proc/1/cgroup"
    return None, "no sign of a container"


def jetson(root: Path) -> Finding:
    """L4T release of a Jetson, ``36.3`` or ``36.4.3``."""
    source = "/etc/nv_tegra_release"
    if match := _TEGRA_RELEASE.search(read_stripped(root / source.lstrip("/"))):
        return f"{match[1]}.{match[2].removesuffix('.0')}", source
    return None, f"no {source}"


VARIABLES = (
    "CC",
    "CONDA_PREFIX",
    "CUDACXX",
    "CUDAHOSTCXX",
    "CUDA_DEVICE_ORDER",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_HOME",
    "CUDA_MODULE_LOADING",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CXX",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MAX_JOBS",
    "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_VISIBLE_DEVICES",
    "TORCH_CUDA_ARCH_LIST",
    "TRITON_LIBCUDA_PATH",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_PTXAS_PATH",
    "VIRTUAL_ENV",
)
"""Environment variables that change what a CUDA program or build does."""

AskLibcuda = Callable[..., "Libcuda | None"]


def detect(
    *,
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
    nvml: Callable[[], NvmlAnswer] = read_nvml,
    libcuda: AskLibcuda = ask_libcuda,
) -> Machine:
    """Read this machine.

    Every child process has a time limit, and none of their failures fails detection: what could not be read is None.

    Args:
        root: Directory to use as ``/``.
        environ: Environment to read and to give to child processes; the process's own by default.
        nvml: Asks NVML.
        libcuda: Asks ``libcuda``; called as :func:`envsolve.machine.nvidia.ask_libcuda` is.

    Returns:
        The machine, with ``sources`` for what was read. ``gpus`` is empty only if it is known that no GPU is there
        or visible; None if there are signs of one that did not answer.
    """
    environ = dict(os.environ if environ is None else environ)
    search = [*folders(environ, root), Path(sys.executable).parent]
    toolkit_folders = find_toolkits(environ, root)
    # Threads only wait for children; a handful keeps a small host from being swamped.
    with ThreadPoolExecutor(max_workers=8) as pool:
        # The slowest first: an installer behind a version manager's shim decides how long detection takes.
        installers = pool.map(lambda item: read_installer(item[0], item[1], environ), find_installers(search).items())
        loaded_later = pool.submit(libcuda, environ)
        toolkits = pool.map(lambda path: read_toolkit(path, environ), toolkit_folders)
        compilers = pool.map(lambda path: read_compiler(path, environ), find_compilers(environ, root))
        interpreters = pool.map(lambda path: read_interpreter(path, environ), find_interpreters(environ, root))
        host, sources = read_platform(root, environ)
        answer = nvml()
        loaded = loaded_later.result()
        version = (answer.driver_version, "nvml") if answer.driver_version else kernel_driver(root)
        driver, driver_sources = judge_driver(
            version, answer, loaded, _own_libcuda(version and version[0], loaded, environ, root, libcuda)
        )
        gpus, gpus_source = _gpus(answer, root, environ, libcuda)
        return Machine(
            platform=host,
            driver=driver,
            gpus=gpus,
            toolkits=tuple(toolkits),
            host_compilers=tuple(found for found in compilers if found),
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            pythons=_with_running([found for found in interpreters if found]),
            installers=tuple(installers),
            environment={name: environ[name] for name in VARIABLES if name in environ},
            sources={
                **sources,
                **driver_sources,
                **({} if driver else {"driver": f"no kernel driver found ({_nvml_says(answer)})"}),
                "gpus": gpus_source,
                **{f"toolkits[{index}]": source for index, source in enumerate(toolkit_folders.values())},
                "toolkits": "CUDA_HOME, CUDA_PATH, PATH, CONDA_PREFIX, /usr/local/cuda*, /opt/cuda",
                "host_compilers": "PATH",
                "python": "running interpreter",
                "pythons": "PATH and running interpreter",
                "installers": "PATH and running interpreter's directory",
                "environment": "environment of this process",
            },
        )


def _own_libcuda(
    version: str | None, loaded: Libcuda | None, environ: Mapping[str, str], root: Path, libcuda: AskLibcuda
) -> Libcuda | None:
    """The driver's own library, asked only if the loader would take a compat one instead."""
    if version is None or loaded is None or not is_compat(loaded, version):
        return None
    path = own_library(version, environ, root=root)
    return libcuda(environ, library=str(path)) if path else None


def _gpus(
    answer: NvmlAnswer, root: Path, environ: Mapping[str, str], libcuda: AskLibcuda
) -> tuple[tuple[Gpu, ...] | None, str]:
    """The visible GPUs and where they were read."""
    if answer.devices is not None:
        return _visible_gpus(answer.devices, environ, libcuda)
    trace = next(gpu_traces(root), None)
    if trace is None:
        return (), f"no kernel module, device node or PCI device of NVIDIA ({_nvml_says(answer)})"
    cuda = libcuda(environ, devices=True)
    if cuda is not None and cuda.devices is not None:
        return cuda.devices, "libcuda"
    return None, f"unknown: {trace}, but neither NVML nor libcuda answers ({_nvml_says(answer)})"


def _nvml_says(answer: NvmlAnswer) -> str:
    """The error of NVML with its name in front, once: some of its errors begin with it."""
    return f"NVML: {(answer.error or 'no error').removeprefix('NVML ')}"


def _visible_gpus(
    devices: tuple[Device, ...], environ: Mapping[str, str], libcuda: AskLibcuda
) -> tuple[tuple[Gpu, ...], str]:
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if not order_matters(devices, value, environ.get("CUDA_DEVICE_ORDER")):
        return visible(devices, value), "nvml" if value is None else "nvml, CUDA_VISIBLE_DEVICES"
    known = {_bare(gpu.uuid): gpu for device in devices for gpu in device.seen if gpu.uuid}
    cuda = libcuda(environ, devices=True)
    if cuda is not None and cuda.devices is not None and all(_bare(gpu.uuid) in known for gpu in cuda.devices):
        return tuple(known[_bare(gpu.uuid)] for gpu in cuda.devices), "nvml, CUDA_VISIBLE_DEVICES in libcuda's order"
    # Too many is the safe side: a plan that is good on all of them is good on the visible ones.
    return visible(
        devices, None
    ), f"nvml; CUDA_VISIBLE_DEVICES={value} not applied: it counts fastest first, unknown here"


def _bare(uuid: str | None) -> str:
    """A UUID without its ``GPU-`` or ``MIG-`` prefix, which CUDA's own form lacks."""
    return (uuid or "").removeprefix("GPU-").removeprefix("MIG-").lower()


def _with_running(found: list[Interpreter]) -> tuple[Interpreter, ...]:
    running = running_interpreter()
    real = real_path(Path(running.path))
    known = any(real_path(Path(interpreter.path)) == real for interpreter in found)
    return tuple(found) if known else (*found, running)
