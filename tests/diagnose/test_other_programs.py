"""GPUs of AMD, and programs beside torch: the cause, and what its fixes say or run."""

from __future__ import annotations

import pytest

import envsolve
from tests.diagnose.reports import assert_a_fix

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
    "an extension of a repository, on Windows": (
        'pip install "git+https://github.com/facebookresearch/pytorch3d.git"\nC:\\v\\site-packages\\pytorch3d\\knn.py'
        "\ntorch 2.3.0+cu121, Windows 11\nImportError: DLL load failed while importing _C: The specified procedure "
        "could not be found.",
        "mixed-flavours",
        r'^(?!.*--no-deps pytorch3d).*set "FORCE_CUDA=1" && pip install .*git\+https',
    ),
    "flash-attn, which has no wheels for Windows": (
        "Windows 11\nImportError: DLL load failed while importing flash_attn_2_cuda: The specified procedure could not "
        "be found.",
        "mixed-flavours",
        "pip uninstall -y flash-attn",
    ),
    "builds of conda that exclude each other": (
        "package pytorch-gpu-2.1.0-cuda112py38_1 requires pytorch 2.1.0 cuda112py38h3_1, but none of the providers can "
        "be installed",
        "mixed-flavours",
        "conda create -n new",
    ),
    "a CPU build in people's words": (
        "conda installs the CPU-only version of it on the A100 nodes\n`torch.cuda.is_available()` returns `False`\n"
        "pytorch>=2.6",
        "cpu-build",
        r"cu1\d\d",
    ),
    "a Visual Studio in people's words": (
        "CUDA 11.8 and Visual Studio 2022: an unsupported MSVC compiler version.",
        "host-compiler-unsupported",
        "2019.BuildTools",
    ),
    "an index that lags behind": (
        "Could not find a version that satisfies the requirement unsloth_zoo>=2099.1 (from versions: 2024.11.1)",
        "no-such-build",
        "--no-cache-dir",
    ),
    "Triton that is not there": (
        "ubuntu 22.04\nModuleNotFoundError: No module named 'triton'",
        "triton-torch-mismatch",
        "'2\\.6': '3\\.2\\.0'",
    ),
    "an isolated build with a torch of its own": (
        "$ pip install -e .\n/tmp/pip-build-env-1a/overlay/lib/python3.10/site-packages/torch/cuda/__init__.py:138: "
        "The NVIDIA driver on your system is too old (found version 11080)",
        "build-isolation",
        r"cu118 && .*--no-build-isolation \.",
    ),
    "parts that torchaudio removed": (
        "AttributeError: module 'torchaudio' has no attribute 'list_audio_backends'",
        "mixed-flavours",
        r"torchaudio==2\.8",
    ),
    "a symbol of the C++ library": (
        "ImportError: /v/ext.so: undefined symbol: _ZNSt15__exception_ptr13exception_ptr10_M_releaseEv",
        "library-shadowed",
        "libstdcxx",
    ),
    "a kernel of xformers for other GPUs": (
        "xformers on 8xA100 nodes\nFATAL: kernel `fmha_cutlassF_f32_sm80` is for sm80-sm90, but was built for sm70",
        "no-kernel-for-gpu",
        r"torch==\S+ xformers==",
    ),
    "a library in a source tree, named below": (
        "[Installation]: undefined symbol: _ZNK3c1011StorageImpl27throw_data_ptr_access_errorEv\nImportError: "
        "/srv/vllm_src/vllm/_C.abi3.so: undefined symbol: _ZNK3c1011StorageImpl27throw_data_ptr_access_errorEv",
        "mixed-flavours",
        "cd /srv/vllm_src && pip install",
    ),
    "people's words about a generation": (
        "Please support the RTX 50 series: it does not support sm120 with this torch.",
        "no-kernel-for-gpu",
        r"torch==\d\S+\+cu1[23]\d",
    ),
    "an engine of another TensorRT": (
        "The engine plan file is not compatible with this version of TensorRT, expecting library version 8.5.2.2 got "
        "8.6.1.6, please rebuild.",
        "library-mismatch",
        "--saveEngine",
    ),
    "llama.cpp without CUDA's libraries": (
        'File "/v/lib/python3.11/site-packages/llama_cpp/_ctypes_extensions.py", line 82\nOSError: libcudart.so.12: '
        "cannot open shared object file: No such file or directory",
        "library-mismatch",
        "nvidia-cuda-runtime-cu12 nvidia-cublas-cu12",
    ),
    "a DLL whose libraries are missing": (
        "cu130\nFileNotFoundError: Could not find module 'D:\\v\\Lib\\site-packages\\llama_cpp\\lib\\ggml.dll' (or one "
        "of its dependencies).",
        "library-mismatch",
        r'"nvidia-cublas==13\.\*" .*site-packages\\llama_cpp\\lib"',
    ),
    "sources in place of the package": (
        'File "/srv/llama_cpp_src/llama_cpp/__init__.py", line 1, in <module>\nFileNotFoundError: Shared library with '
        "base name 'llama' not found",
        "dependency-missing",
        "cd / && pip install .*llama-cpp-python",
    ),
    "a wheel without its compiled part": (
        'File "/v/lib/python3.11/site-packages/pytorch3d/__init__.py", line 1\nModuleNotFoundError: No module named '
        "'pytorch3d._C'",
        "dependency-missing",
        "--force-reinstall --no-deps --no-cache-dir pytorch3d",
    ),
    "conda's linker and the system's toolkit": (
        "compiler_compat/ld: libggml.so: undefined reference to `cudaGraphLaunch@libcudart.so.12'",
        "toolkit-headers-missing",
        "rpath-link",
    ),
    "WSL without CUDA's library": (
        "WSL version: 2.1.5.0\n| NVIDIA-SMI 545.46   Driver Version: 546.80   CUDA Version: ERR!  |",
        "driver-needs-reload",
        "wsl --update",
    ),
    "a channel without what another needs": (
        "pixi global install pytorch -c pytorch\nblas * mkl, for which no candidates were found.",
        "no-such-build",
        "conda-forge",
    ),
}


@pytest.mark.parametrize(("log", "cause", "fix"), KINDS.values(), ids=KINDS)
def test_the_fixes(log: str, cause: str, fix: str) -> None:
    assert_a_fix(log, cause, fix)


def test_a_cpu_build_that_was_asked_for_is_not_the_certain_cause() -> None:
    log = (
        "$ uv add torch --index https://download.pytorch.org/whl/cpu\n$ uv pip list\ntorch    2.5.1+cpu\nerror: no file"
    )
    assert [found.certainty for found in envsolve.diagnose(log).diagnoses if found.cause == "cpu-build"] != ["certain"]


def test_memory_of_the_gpu_is_not_that_of_a_build() -> None:
    text = envsolve.diagnose("CUDA out of memory. Tried to allocate 2.00 GiB").diagnoses[0].explanation
    assert "process" not in text
