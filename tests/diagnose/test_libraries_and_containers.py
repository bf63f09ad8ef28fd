"""Libraries, headers and devices that are not found: the cause, and what its fixes say or run."""

from __future__ import annotations

import pytest

import envsolve
from tests.diagnose.reports import assert_a_fix

_FALLBACK = "WARNING: An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed."
#: The report, the cause that comes first, and what one of its fixes says or runs.
KINDS = {
    "a header of a part of the toolkit": (
        "torch 2.6.0+cu124\nfatal error: cuda_profiler_api.h: No such file or directory",
        "toolkit-headers-missing",
        r"cuda-minimal-build-12-4 libcublas-dev-12-4 .*cuda-profiler-api-12-4",
    ),
    "an nvcc with what torch's headers include": (
        "torch 2.6.0+cu124\nCUDA_HOME environment variable is not set",
        "nvcc-missing",
        "libcusparse-dev",
    ),
    "an nvcc for Windows": (
        "Windows 11, conda\ntorch 2.6.0+cu124\nCUDA_HOME environment variable is not set",
        "nvcc-missing",
        r'set "CUDA_HOME=%CONDA_PREFIX%\\Library"',
    ),
    "podman without a list of devices": (
        "$ podman run --device nvidia.com/gpu=all ubuntu\nunresolvable CDI devices nvidia.com/gpu=all",
        "no-driver",
        "nvidia-ctk cdi generate",
    ),
    "a runtime that Docker does not know": (
        "Arch Linux\n$ sudo docker compose up\nError response from daemon: unknown or invalid runtime name: nvidia",
        "no-driver",
        r"nvidia-ctk runtime configure.*sudo pacman -S nvidia-container-toolkit",
    ),
    "a toolkit whose ldconfig is ended": (
        "docker run --gpus all x\nnvidia-container-cli: ldcache error: process /sbin/ldconfig terminated with signal 9",
        "no-driver",
        r"--device nvidia\.com/gpu=all",
    ),
    "a container engine in a machine of its own": (
        "docker run --gpus all x\nnvidia-container-cli: initialization error: load library failed:libnvidia-ml.so.1",
        "no-driver",
        "WSL 2",
    ),
    "Docker whose CDI is off": (
        'Error response from daemon: could not select device driver "cdi" with capabilities: [].',
        "no-driver",
        r"--cdi\.enabled",
    ),
    "a library that a listing shows is there": (
        "faster-whisper with ctranslate2\nCould not load library libcublas.so.12. Error: libcublas.so.12: cannot open "
        "shared object file\nlibcudnn_ops_infer.so.8 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcudnn_ops_infer.so.8",
        "library-mismatch",
        r'nvidia-cublas-cu12 "nvidia-cudnn-cu12>=9"',
    ),
    "a program with a Python of its own": (
        "RuntimeError: Library cublas64_11.dll is not found or cannot be loaded\nFailed to execute script 'main'",
        "library-mismatch",
        "--target cuda nvidia-cublas-cu11",
    ),
    "jax that another package moved": (_FALLBACK, "cpu-build", r"jax\[cuda12\]==\$\(python"),
    "a plug-in of jax for newer Pythons": (
        'Python 3.10.12, driver 580.95\n$ pip install "jax[cuda13]"\nonly jax and jaxlib are installed',
        "python-caps-build",
        r"uv venv --python 3\.1\d .*jax\[cuda13\]",
    ),
}


@pytest.mark.parametrize(("log", "cause", "fix"), KINDS.values(), ids=KINDS)
def test_the_fixes(log: str, cause: str, fix: str) -> None:
    assert_a_fix(log, cause, fix)


def test_a_cpu_jax_is_not_called_a_torch() -> None:
    assert "torch that is installed" not in envsolve.diagnose(_FALLBACK).diagnoses[0].explanation


def test_nccl_is_asked_for_its_own_words() -> None:
    steps = envsolve.diagnose("RuntimeError: NCCL error: unhandled cuda error").next_steps
    assert any("NCCL_DEBUG=INFO" in (step.command or "") for step in steps)
