"""The cause and the first fix of kinds of public reports: what is printed first works on that machine."""

from __future__ import annotations

import re

import pytest

import envsolve

_SITE = "/srv/env/lib/python3.11/site-packages"
_SYMBOL = "undefined symbol: _ZN3c104cuda9SetDeviceEi"
_FLASH = f"ImportError: {_SITE}/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: {_SYMBOL}"
_NVRTC = "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory"
#: The report, the cause that comes first, and what its first fix says or runs.
KINDS = {
    "flash-attn has a wheel for this torch": (
        f"torch==2.4.0+cu121\n{_FLASH}",
        "mixed-flavours",
        r"flash-attention/releases/download/\S+torch2\.4cxx11abiFALSE-cp311",
    ),
    "flash-attn has none": (f"torch==2.11.0\n{_FLASH}", "mixed-flavours", "pip uninstall -y flash-attn"),
    "flash-attn beside an unknown torch": (_FLASH, "mixed-flavours", r"pip install --no-build-isolation .*flash-attn"),
    "the torch that a sentence tells of": (
        f"After an install of vllm the version of torch becomes 2.6.0.\n{_FLASH}",
        "mixed-flavours",
        r"torch2\.6cxx11abi",
    ),
    "an extension compiled in its own directory": (
        f"/srv/gs/ext/blend/blendlib.cpython-310-x86_64-linux-gnu.so: {_SYMBOL}",
        "mixed-flavours",
        "cd /srv/gs/ext/blend &&",
    ),
    "bitsandbytes finds no library of CUDA 11": (
        "Could not load bitsandbytes native library: libcusparse.so.11: cannot open shared object file: No such file or"
        f' directory\n  File "{_SITE}/bitsandbytes/cextension.py", line 85, in <module>',
        "library-mismatch",
        "nvidia-cusparse-cu11.*LD_LIBRARY_PATH",
    ),
    "a kernel package beside a torch that loads": (
        f"{_NVRTC}\nCUDA available: True\nPyTorch: 2.8.0+cu128\nsgl_kernel: 0.3.8",
        "library-mismatch",
        "nvidia-cuda-nvrtc-cu12.*LD_LIBRARY_PATH",
    ),
    "torch's own library": (f"import torch\n{_NVRTC}\ntorch 2.8.0", "lock-incomplete", "nvidia-cuda-nvrtc-cu12=="),
    "bitsandbytes from its sources": (
        "Could not find the bitsandbytes CUDA binary at PosixPath('/srv/src/bnb/bitsandbytes/libbitsandbytes_cuda126"
        ".so')\nCUDA Setup failed despite GPU being available.",
        "mixed-flavours",
        r"sources in /srv/src/bnb.*cd / &&",
    ),
    "gsplat without MSVC": (
        "subprocess.CalledProcessError: Command '['where', 'cl']' returned non-zero exit status 1.",
        "host-compiler-missing",
        "BuildTools",
    ),
    "onnxruntime on Windows": (
        'FAIL : LoadLibrary failed with error 126 "" when trying to load "D:\\tools\\webui\\system\\python\\lib\\'
        'site-packages\\onnxruntime\\capi\\onnxruntime_providers_cuda.dll"',
        "library-mismatch",
        r"onnxruntime-gpu\[cuda,cudnn\]",
    ),
    "CTranslate2 for cuDNN 9 beside a torch with cuDNN 8": (
        "Could not locate cudnn_ops64_9.dll. Please make sure it is in your library path!\n"
        "Invalid handle. Cannot load symbol cudnnCreateTensorDescriptor\nctranslate2 4.5.0\ntorch 2.2.2+cu121\n"
        "Windows 11",
        "library-mismatch",
        r"torch==2\.(?:[4-9]|1\d)",
    ),
    "cuDNN of a conda environment": (
        "$ conda create -n sim jax\ncuda_dnn.cc:456] Loaded runtime CuDNN library: 9.8.0 but source was compiled with: "
        "9.12.0.  CuDNN library needs to have matching major version",
        "library-mismatch",
        r'conda install -c conda-forge "cudnn>=9\.12"',
    ),
    "TensorFlow whose kernels do not compile": (
        "RTX 5070, driver 580.95\ntf_gpu_runtime_wrappers.cc:40] 'cuModuleLoadData(&module, data)' failed with "
        "'CUDA_ERROR_INVALID_PTX'",
        "no-kernel-for-gpu",
        "nvcr.io/nvidia/tensorflow",
    ),
    "a project's index for another system": (
        "On Windows uv sync gives me the CPU torch.\n[tool.uv.sources]\ntorch = [{ index = 'pt', marker = "
        "\"sys_platform == 'linux'\" }]\n[[tool.uv.index]]\nurl = 'https://download.pytorch.org/whl/cu126'\n"
        ">>> torch.__version__\n'2.8.0+cpu'",
        "cpu-build",
        r"torch==2\.8\.0\+cu126",
    ),
    "the variant that a sentence tells of": (
        "GTX 1080 and PyTorch 2.8.0 + cu129\nCUDA error: no kernel image is available for execution on the device",
        "no-kernel-for-gpu",
        r"torch==2\.8\.0\+cu126",
    ),
}


@pytest.mark.parametrize(("log", "cause", "fix"), KINDS.values(), ids=KINDS)
def test_the_first_fix(log: str, cause: str, fix: str) -> None:
    first = envsolve.diagnose(log).diagnoses[0]
    assert first.cause == cause
    text, command = first.remedies[0].text, first.remedies[0].command or ""
    if cause == "mixed-flavours" and "sources in" in fix:  # the variable that the message names comes first
        text, command = first.remedies[-1].text, first.remedies[-1].command or ""
    assert re.search(fix, f"{text} {command}", re.DOTALL), (text, command)
