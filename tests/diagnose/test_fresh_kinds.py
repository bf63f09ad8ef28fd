"""The cause and the first fix of kinds that a later round of public reports and of people's own words showed."""

from __future__ import annotations

import pytest

import envsolve
from tests.diagnose.reports import assert_a_fix

_UV = "error: Distribution `{}` can't be installed because it doesn't have a source distribution or wheel for the "
_UV += "current platform\n\nhint: You're on {}, but `{} only has wheels for the following {}"
_ORT = "[ONNXRuntimeError] : 1 : FAIL : "

#: The report, the cause that comes first, and what its first fix says or runs.
KINDS = {
    "symptom: no kernels for a GPU that is named by its number": (
        "my 5070 Ti gives black images and says the torch build has no kernels for it, torch 2.5.1 cu121",
        "no-kernel-for-gpu",
        r"torch==\S+\+cu128",
    ),
    "symptom: a version after an update, with a CUDA major": (
        "my GTX 1060 stopped working after updating pytorch to 2.9 with cuda 13",
        "no-kernel-for-gpu",
        r"torch==2\.9\.0\+cu126",
    ),
    "symptom: a container without a GPU": (
        "docker container sees no gpu although nvidia-smi works on the host",
        "no-driver",
        "--gpus all",
    ),
    "symptom: a CPU build": (
        "pip installed torch but it is the cpu version on my windows laptop with a RTX 4060",
        "cpu-build",
        r"whl/cu\d{3}",
    ),
    "symptom: an nvcc that does not know the GPU": (
        "nvcc 11.5 from ubuntu apt doesn't know sm_89",
        "nvcc-arch-unknown",
        r'TORCH_CUDA_ARCH_LIST="8\.6"',
    ),
    "symptom: conda on a login node": (
        "conda installs pytorch cpu on the login node of the cluster because there is no gpu there",
        "virtual-package-missing",
        "CONDA_OVERRIDE_CUDA",
    ),
    "symptom: a GPU that somebody wants to use": (
        "How could I get it to work on the 5090 with torch?\nCUDA error: no kernel image is available for execution",
        "no-kernel-for-gpu",
        r"torch==\S+\+cu128",
    ),
    "a plug-in of JAX that is newer than jax": (
        "RuntimeError: Unable to initialize backend 'cuda': INVALID_ARGUMENT: Unexpected PJRT_Client_Create_Args size: "
        "expected 88, got 72.\njax              0.4.38    pypi_0    pypi\njax-cuda12-plugin   0.5.0    pypi_0    pypi",
        "library-mismatch",
        r"jax\[cuda12\]==0\.4\.38",
    ),
    "a build of jaxlib that is in plug-ins now": (
        "ERROR: Could not find a version that satisfies the requirement jaxlib==0.4.30+cuda12.cudnn89 (from versions: "
        "0.1.75+cuda11.cudnn805)\nERROR: No matching distribution found for jaxlib==0.4.30+cuda12.cudnn89",
        "no-such-build",
        r'pip install -U "jax\[cuda12\]"',
    ),
    "a TensorFlow of CUDA 11": (
        "dso_loader.cc:64] Could not load dynamic library 'libcusolver.so.11'; dlerror: libcusolver.so.11: cannot\n"
        "dso_loader.cc:64] Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared\n"
        "Cannot dlopen some GPU libraries.\n/usr/local/lib/python3.7/dist-packages/tensorflow",
        "library-mismatch",
        r"nvidia-cusolver-cu11 .*nvidia-cudnn-cu11==8",
    ),
    "a CuPy of CUDA 11 with a library of CUDA 12": (
        'cupy-cuda11x==12.0.0\n  File "cupy/cuda/device.pyx", line 9, in init cupy.cuda.device\n'
        "ImportError: libnvJitLink.so.12: cannot open shared object file: No such file or directory",
        "library-mismatch",
        "CuPy is built for CUDA 11.*nvidia-cusolver-cu11",
    ),
    "a lock of uv for other platforms, of an index that has the variant": (
        _UV.format(
            "torch==2.5.1 @ registry+https://download.pytorch.org/whl/cu124",
            "Windows (`win_amd64`)",
            "torch` (v2.5.1)",
            "platform: `linux_aarch64`",
        ),
        "lock-incomplete",
        "required-environments.*win32.*uv lock --upgrade-package torch",
    ),
    "a local version that a platform does not have": (
        _UV.format(
            "torchaudio==2.6.0+cpu @ registry+https://download.pytorch.org/whl/cpu",
            "Linux (`manylinux_2_38_aarch64`)",
            "torchaudio` (v2.6.0+cpu)",
            "platforms: `linux_x86_64`, `win_amd64`",
        ),
        "no-such-build",
        r"torchaudio==2\.6\.0; platform_machine == 'aarch64'",
    ),
    "ONNX Runtime in a program that is not Python": (
        f"{_ORT}Failed to load library /home/me/app/target/debug/libonnxruntime_providers_cuda.so with error: "
        "libcublasLt.so.12: cannot open shared object file: No such file or directory",
        "library-mismatch",
        r"--target \./cuda .*nvidia-cublas-cu12",
    ),
    "ONNX Runtime that names the DLL": (
        f'{_ORT}Error loading "E:\\app\\lib\\onnxruntime_providers_cuda.dll" which depends on "cublasLt64_12.dll" '
        "which is missing. (Error 126: main.go:41",
        "library-mismatch",
        r'nvidia-cublas-cu12 .*copy "%f" "E:\\app\\lib"',
    ),
    "kernels of SGLang for another CUDA than its newest torch": (
        "ImportError:\n[sgl_kernel] CRITICAL: Could not load any common_ops library!\n- Compute capability: 120\n"
        "- ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
        "mixed-flavours",
        r"--torch-backend cu12\d ",
    ),
    "a torch that is written as one word": (
        "After I upgrade my cudatoolkit to 12.8, i used torch2.6.0+cu126, but i met:\nlib/python3.11/site-packages/"
        "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs",
        "mixed-flavours",
        r"torch2\.6cxx11abiTRUE-cp311",
    ),
    "CUDA_HOME without a value": (
        'torch in nvidia/cuda:12.8.1-devel-ubuntu22.04, the step fails with "/bin/nvcc: not found"',
        "cuda-home-elsewhere",
        "CUDA_HOME=/usr/local/cuda$",
    ),
    "an image with a driver of its own, on a host that is named": (
        "I can't get the docker image to run:\nFailed to initialize NVML: Driver/library version mismatch\n"
        "NVML library version: 565.57\nwhen I run things like nvidia-smi on a host where the nvidia driver is 535.",
        "driver-needs-reload",
        "Remove the driver's packages from the image",
    ),
    "a path of Windows on a line with a URL": (
        "Could not load libtorchcodec. Likely causes: The PyTorch version (2.9.0+cu130) see https://github.com/pytorch/"
        "torchcodec FFmpeg version 8: Could not load this library: C:\\AI\\p\\Lib\\torchcodec\\libtorchcodec_core8.dll",
        "library-mismatch",
        "winget install",
    ),
    "a torchcodec for another CUDA": (
        'Could not load libtorchcodec. Likely causes: The PyTorch version (2.11.0+cu128)\n  File "/usr/local/lib/'
        'python3.12/ctypes/__init__.py"\nOSError: libnvrtc.so.13: cannot open shared object file: No such file',
        "mixed-flavours",
        r"torchcodec==\S+\+cu128 --index-url \S+/cu128",
    ),
    "xformers beside the same torch without CUDA": (
        "(pia) PS E:\\PIA> python inference.py\nxFormers can't load C++/CUDA extensions. xFormers was built for:\n"
        "    PyTorch 2.1.2+cu121 with CUDA 1201 (you have 2.1.2+cpu)\nxformers: 0.0.21",
        "cpu-build",
        r"torch==2\.1\.2\+cu121",
    ),
    "a CUDA for which no bitsandbytes has a library": (
        "CUDA SETUP: Required library version not found: libbitsandbytes_cuda116.so. Maybe you need to compile it",
        "mixed-flavours",
        "whl/cu118",
    ),
}


@pytest.mark.parametrize(("log", "cause", "fix"), KINDS.values(), ids=KINDS)
def test_the_first_fix(log: str, cause: str, fix: str) -> None:
    assert_a_fix(log, cause, fix, slice(1))


@pytest.mark.parametrize(
    ("log", "causes"),
    [
        # nvcc ran: CMake's error is a consequence.
        (
            "CMAKE_CUDA_ARCHITECTURES must be valid if set.\nerror: #error -- unsupported GNU version! gcc versions "
            "later than 11 are not supported!\ngcc version: 12.1.0",
            ["host-compiler-unsupported"],
        ),
        # No torch is in the report, so nothing is said of its runtime.
        ("import cupy\nImportError: libcudart.so.12: cannot open shared object file: No such", ["library-mismatch"]),
        # The CPU build is wanted: no CUDA build is offered.
        (
            "`uv pip install torch==2.6.0+cpu --index-url https://download.pytorch.org/whl/cpu` works\n"
            + _UV.format("torch==2.6.0 @ registry+https://download.pytorch.org/whl/cpu",
                         "Linux (`manylinux_2_35_x86_64`)", "torch` (v2.6.0)", "platform: `macosx_11_0_arm64`"),
            ["lock-incomplete"],
        ),
    ],
)  # fmt: skip
def test_nothing_else_is_named(log: str, causes: list[str]) -> None:
    assert [one.cause for one in envsolve.diagnose(log).diagnoses] == causes


def test_no_other_release_is_promised_if_there_is_none() -> None:
    log = "Required library version not found: libbitsandbytes_cuda116.so. Maybe you need to compile it from source?"
    first = envsolve.diagnose(log).diagnoses[0]
    assert "no later release has one" in first.explanation
    assert not any(fix.command == "pip install -U --no-deps bitsandbytes" for fix in first.remedies)
