"""GPUs of AMD, and programs beside torch: the cause, and what its fixes say or run."""

from __future__ import annotations

import re

import pytest

import envsolve

_126 = 'FAIL : LoadLibrary failed with error 126 "" when trying to load "D:\\x\\onnxruntime_providers_cuda.dll"'
#: The report, the cause that comes first, and what one of its fixes says or runs.
KINDS = {
    "a ROCm build without code for the GPU": (
        "RX 7600, torch 2.5.1+rocm6.2\nRuntimeError: HIP error: invalid device function",
        "no-kernel-for-gpu",
        r"HSA_OVERRIDE_GFX_VERSION=11\.0\.0",
    ),
    "a ROCm build that sees no GPU": (
        "RuntimeError: No HIP GPUs are available\nRX 6600, Ubuntu 24.04",
        "gpu-not-visible",
        r"render,video .*HSA_OVERRIDE_GFX_VERSION=10\.3\.0",
    ),
    "an AMD model without the letters RX": (
        "my new 7900XTX on Windows 11\nAssertionError: Torch not compiled with CUDA enabled",
        "cpu-build",
        "rocm.docs.amd.com",
    ),
    "parts of flashinfer": (
        "flashinfer-cubin version (0.6.1) does not match flashinfer version (0.6.2). Please install the same version",
        "mixed-flavours",
        r"flashinfer-cubin==0\.6\.2 .*pip uninstall -y flashinfer-cubin",
    ),
    "a kernel for other majors": (
        "RuntimeError: No supported CUDA architectures found for major versions [10].",
        "no-kernel-for-gpu",
        "--attention-backend",
    ),
    "ONNX Runtime from NuGet": (
        f"Microsoft.ML.OnnxRuntime.OnnxRuntimeException: {_126}",
        "library-mismatch",
        "dotnet add package",
    ),
    "numba before a NumPy": (
        "ImportError: Numba needs NumPy 2.0 or less. Got NumPy 2.1.",
        "library-mismatch",
        r"2\.0\.\*",
    ),
    "memory of a build in people's words": (
        "Building flash-attn from source on 16 cores goes out of memory and the machine freezes.",
        "out-of-memory",
        "MAX_JOBS=2",
    ),
    "a request between backticks": (
        "Python 3.13.1\n`Could not find a version that satisfies the requirement torch==2.3.0`",
        "python-caps-build",
        r"uv venv --python 3\.12 .*torch==2\.3\.0'",
    ),
    "a channel without what another needs": (
        "pixi global install pytorch -c pytorch\nblas * mkl, for which no candidates were found.",
        "no-such-build",
        "conda-forge",
    ),
}


@pytest.mark.parametrize(("log", "cause", "fix"), KINDS.values(), ids=KINDS)
def test_the_fixes(log: str, cause: str, fix: str) -> None:
    first = envsolve.diagnose(log).diagnoses[0]
    assert first.cause == cause
    said = " ".join(f"{remedy.text} {remedy.command or ''}" for remedy in first.remedies)
    assert re.search(fix, said, re.DOTALL), said


def test_memory_of_the_gpu_is_not_that_of_a_build() -> None:
    text = envsolve.diagnose("CUDA out of memory. Tried to allocate 2.00 GiB").diagnoses[0].explanation
    assert "process" not in text
