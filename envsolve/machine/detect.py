"""Reading the machine at hand: every source asked at once, joined into one value."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from envsolve.files import real_path
from envsolve.machine.compilers import find_compilers, read_compiler
from envsolve.machine.driver import gpu_traces, is_compat, judge_driver, kernel_driver
from envsolve.machine.host import read_platform
from envsolve.machine.installers import find_installers, read_installer
from envsolve.machine.interpreters import find_interpreters, read_interpreter, running_interpreter
from envsolve.machine.libcuda import Libcuda, ask_libcuda, own_library
from envsolve.machine.model import Gpu, Interpreter, Machine
from envsolve.machine.nvml import NvmlAnswer, read_nvml
from envsolve.machine.search_path import folders
from envsolve.machine.toolkits import find_toolkits, read_toolkit
from envsolve.machine.visible import Device, order_matters, visible

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
    """Read the machine at hand.

    Every child process has a time limit, and none of their failures fails detection: what could not be read is None.

    Args:
        root: Folder that stands for ``/``.
        environ: Environment to read and to give to child processes; the process's own by default.
        nvml: Asks NVML.
        libcuda: Asks ``libcuda``; called as :func:`envsolve.machine.libcuda.ask_libcuda` is.

    Returns:
        The machine, with ``sources`` for what was read. ``gpus`` is empty only where it is known that no GPU is there
        or visible; None where there are signs of one that did not answer.
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
                **({} if driver else {"driver": f"no kernel driver found (NVML: {answer.error})"}),
                "gpus": gpus_source,
                **{f"toolkits[{index}]": source for index, source in enumerate(toolkit_folders.values())},
                "toolkits": "CUDA_HOME, CUDA_PATH, PATH, CONDA_PREFIX, /usr/local/cuda*, /opt/cuda",
                "host_compilers": "PATH",
                "python": "running interpreter",
                "pythons": "PATH and running interpreter",
                "installers": "PATH and running interpreter's folder",
                "environment": "environment of this process",
            },
        )


def _own_libcuda(
    version: str | None, loaded: Libcuda | None, environ: Mapping[str, str], root: Path, libcuda: AskLibcuda
) -> Libcuda | None:
    """The driver's own library, asked only where the loader would take a compat one instead."""
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
        return (), f"no kernel module, device node or PCI device of NVIDIA (NVML: {answer.error})"
    cuda = libcuda(environ, devices=True)
    if cuda is not None and cuda.devices is not None:
        return cuda.devices, "libcuda"
    return None, f"unknown: {trace}, but neither NVML ({answer.error}) nor libcuda answers"


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
