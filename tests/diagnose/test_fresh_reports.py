"""The cause and the first fix of kinds that later public reports showed."""

from __future__ import annotations

import pytest

from tests.diagnose.reports import assert_a_fix

#: The report, the cause that comes first, and what its first fix says or runs.
KINDS = {
    "releases of the default index, the first of which says for which Python": (
        "ERROR: Could not find a version that satisfies the requirement torch==1.12.1+cu113 (from versions: 2.2.0, "
        "2.2.1, 2.2.2, 2.3.0, 2.3.1, 2.4.0)\nERROR: No matching distribution found for torch==1.12.1+cu113",
        "python-caps-build",
        r"uv venv --python 3\.10 .*torch==1\.12\.1\+cu113.* --index \S+/cu113",
    ),
    "a Python without any wheel of torch": (
        "ERROR: Could not find a version that satisfies the requirement torch==1.9.1+cu111 (from versions: 0.1.2, "
        "0.1.2.post1, 0.1.2.post2)\nERROR: No matching distribution found for torch==1.9.1+cu111",
        "python-caps-build",
        r"uv venv --python 3\.9 ",
    ),
    "the releases of an older Python on Windows": (
        "ERROR: Could not find a version that satisfies the requirement torch==1.13.1+cu116 (from versions: 2.0.0, "
        "2.0.1, 2.1.0)\nERROR: No matching distribution found for torch==1.13.1+cu116\n"
        "[notice] To update, run: python.exe -m pip install --upgrade pip",
        "python-caps-build",
        r"--python 3\.10 ",
    ),
    "a variant that is spelt otherwise": (
        "ERROR: No matching distribution found for torch==1.7.1+cu11.0",
        "no-such-build",
        r"pip install torch==1\.7\.1\+cu110 ",
    ),
    "the pins of a requirement file": (
        "Collecting torch==2.0.1 (from -r requirements.txt (line 4))\n"
        "Collecting flash-attn==0.2.8 (from -r requirements.txt (line 5))\n  Preparing metadata (setup.py) ... error\n"
        "      ModuleNotFoundError: No module named 'torch'\nerror: metadata-generation-failed",
        "build-isolation",
        r"torch==2\.0\.1 setuptools .* --no-build-isolation flash-attn==0\.2\.8",
    ),
    "the torch of NVIDIA's image": (
        "FROM nvcr.io/nvidia/pytorch:24.01-py3\nImportError: /usr/local/lib/python3.10/dist-packages/vllm/"
        "_C.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN2at4_ops15to_dtype_layout4callERKNS_6TensorE",
        "mixed-flavours",
        r"uv venv --python 3\.12 /opt/vllm",
    ),
    "the Python that a program brings": (
        "C:\\apps\\pack\\system\\python\\lib\\site-packages\\torch\\cuda\\__init__.py:235: UserWarning:\n"
        "Xformers is not installed!\nNVIDIA GeForce RTX 5070 Ti with CUDA capability sm_120 is not compatible with the "
        "current PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_61 sm_70 sm_75 sm_80 sm_86 sm_90.",
        "no-kernel-for-gpu",
        r'"C:\\apps\\pack\\system\\python\\python\.exe" -m pip install torch==\S+\+cu128 --index-url',
    ),
    "a driver that a container does not have any more": (
        "on the host:\n| NVIDIA-SMI 515.48.07    Driver Version: 515.48.07    CUDA Version: 11.7 |\n"
        "in jupyter:\nFailed to initialize NVML: Driver/library version mismatch",
        "driver-needs-reload",
        r"docker restart CONTAINER",
    ),
    "jax that conda installed": (
        "$ conda create -n jaxtest jax jaxlib\nAn NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib "
        "is not installed. Falling back to cpu.",
        "cpu-build",
        r'conda install -c conda-forge jax "jaxlib=\*=\*cuda\*"',
    ),
    "a part of the toolkit that CMake does not find": (
        "-- Found CUDAToolkit: /usr/local/cuda-12.8/include (found version 12.8.93)\n"
        '  Target "ggml-cuda" links to:\n\n    CUDA::cublas\n\n  but the target was not found.',
        "toolkit-headers-missing",
        r"libcublas-dev",
    ),
    "a cuDNN that is older than JAX's, of no shown place": (
        "CUDA backend failed to initialize: Found cuDNN version 8600, but JAX was built against version 8906, which "
        "is newer. The copy of cuDNN that is installed must be at least as new as the version against which JAX was "
        "built.",
        "library-shadowed",
        r'"nvidia-cudnn-cu12>=8\.9,<9"',
    ),
    "xformers on a Mac": (
        "Mac M1\nWARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
        "    PyTorch 2.0.1 with CUDA 1106 (you have 2.0.1)",
        "mixed-flavours",
        "pip uninstall -y xformers",
    ),
    "a module beside the packages that needs a newer glibc": (
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by /usr/local/lib/"
        "python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so)",
        "libc-too-old",
        "FLASH_ATTENTION_FORCE_BUILD=TRUE pip install .*--no-binary flash-attn flash-attn",
    ),
    "an extension of the other ABI that has a wheel for this torch": (
        "python 3.12.7\ntorch 2.6.0\nflash-attn 2.6.3\nImportError: /opt/lib/python3.12/site-packages/"
        "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_"
        "14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
        "mixed-flavours",
        r"torch2\.6cxx11abiFALSE-cp312",
    ),
    "torchvision beside an unknown torch": (
        "RuntimeError: operator torchvision::nms does not exist",
        "mixed-flavours",
        r"pip install torchvision .torch==\$\(python -c .import torch",
    ),
    "a program that a container runs": (
        "$ docker run -d -p 99:99 --gpus all xprobe/xinference:latest xinference-local -H 0.0.0.0\n"
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.",
        "no-kernel-for-gpu",
        r"FROM xprobe/xinference:latest\\nRUN pip install torch==\S+cu128",
    ),
    "a container without the GPUs": (
        "$ docker run -it --rm -v /a:/b nvidia/cuda:12.4.1-base-ubuntu22.04 python3 x.py\n"
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "no-driver",
        r"docker run --gpus all -it --rm -v /a:/b nvidia/cuda:12\.4\.1-base-ubuntu22\.04 python3 x\.py",
    ),
    "an option that an older nvcc does not know": (
        "vllm, flashinfer\nnvcc fatal   : Unknown option '-static-global-template-stub=false'\nninja: build stopped",
        "nvcc-torch-mismatch",
        "CUDA_HOME=",
    ),
    "a download that was cut": (
        "pip install torch --index-url https://download.pytorch.org/whl/cu118 --no-cache-dir\n"
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    torch from https://download."
        "pytorch.org/whl/cu118/torch-2.1.0%2Bcu118-cp311-cp311-linux_x86_64.whl#sha256=bcb17e2de6ca634d326203694d0b:\n"
        "        Expected sha256 bcb17e2de6ca634d326203694d0b\n             Got        f1a1a503fb72",
        "index-unreachable",
        r"pip cache purge .*torch --index-url \S+ --no-cache-dir --resume-retries",
    ),
    "cuBLAS that does not start": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "out-of-memory",
        "nvidia-smi",
    ),
    "a list with a hyphen before torch": (
        "- python 3.10\n- CUDA 11.7\n- torch 1.13.1\nUserWarning: mamba_ssm was requested, but nvcc was not found.",
        "nvcc-missing",
        r"cuda-11\.7",
    ),
    "TensorFlow that does not know the GPU": (
        "TensorFlow 2.20.0, NVIDIA GeForce RTX 5080 Laptop GPU\nThe root cause is a CUDA_ERROR_INVALID_PTX error.",
        "no-kernel-for-gpu",
        "nvcr.io/nvidia/tensorflow",
    ),
    "a compiler of XLA that does not know the GPU": (
        "tensorflow, RTX 5060 Ti\nLLVM ERROR: PTX version 8.5 does not support target 'sm_120' (or 'sm_120a').",
        "no-kernel-for-gpu",
        "nvcr.io/nvidia/tensorflow",
    ),
    "numba that does not know the GPU": (
        "NVIDIA GeForce RTX 5080\nnumba.cuda.cudadrv.driver.CudaAPIError: [209] Call to cuModuleLoadDataEx results in "
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "no-kernel-for-gpu",
        "numba-cuda",
    ),
    "an older ptxas before that of JAX": (
        "Invoking ptxas with version 12.1.66, which corresponds to a CUDA version <=12.6.2.\nINTERNAL: ptxas exited: "
        "ptxas /tmp/tempfile-x, line 9; fatal   : Unsupported .version 8.4; current version is '8.1'",
        "cuda-home-elsewhere",
        r"jax\[cuda12\].*PATH=",
    ),
    "a build of CUDA code on a Mac": (
        "/private/var/folders/rd/T/pip-install-8xo/causal-conv1d/setup.py:77: UserWarning: causal_conv1d was requested"
        ", but nvcc was not found.",
        "nvcc-missing",
        "Leave the package out on the Mac",
    ),
    "a build in a project of uv": (
        "warning: `VIRTUAL_ENV=/srv/.venv` does not match the project environment path `.venv` and will be ignored\n"
        "  x Failed to build `flash-attn==2.8.3`\n      ModuleNotFoundError: No module named 'torch'",
        "build-isolation",
        "extra-build-dependencies",
    ),
}


@pytest.mark.parametrize(("log", "cause", "fix"), KINDS.values(), ids=KINDS)
def test_the_first_fix(log: str, cause: str, fix: str) -> None:
    assert_a_fix(log, cause, fix, slice(1))
