"""The first fix of a report: it must fit the tool, the machine and the way in which the program was installed."""

from __future__ import annotations

import re

import pytest

import envsolve

#: Kinds of public reports, told in our own words around the line that counts: the report, the cause, the first fix.
FIRST = {
    "faiss-kepler": (
        "Tesla K80\nFaiss assertion 'err == cudaSuccess' failed: CUDA error 209 no kernel image is available",
        "no-kernel-for-gpu",
        r'-DCMAKE_CUDA_ARCHITECTURES="37"',
    ),
    "own-torch": (
        "torch 2.6.0a0+git1a2b3c4 on a GeForce RTX 2080 Ti\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "no-kernel-for-gpu",
        r'TORCH_CUDA_ARCH_LIST="7\.5" USE_CUDA=1 pip install --no-build-isolation -v -e \.',
    ),
    "nvcc-program": (
        "$ nvcc -arch=sm_75 -code=sm_75 a.cu\nNVIDIA H100\nno kernel image is available for execution",
        "no-kernel-for-gpu",
        r"nvcc -gencode arch=compute_90,code=sm_90 \.\.\.",
    ),
    "dropped-arch": (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nCuda compilation tools, release 13.0, V13.0.88\n"
        "$ nvcc -arch=sm_60 a.cu\nnvcc fatal   : Unsupported gpu architecture 'compute_60'",
        "nvcc-arch-unknown",
        r"nvcc -gencode arch=compute_90,code=sm_90 \.\.\.",
    ),
    "old-distribution-nvcc": (
        "RTX 3070\nnvcc fatal   : Value 'compute_86' is not defined for option 'gpu-architecture'",
        "nvcc-arch-unknown",
        r"12\.\d|cuda-12",
    ),
    "cupy-pascal": (
        "GTX 1080, CuPy 13.6.0, NVRTC Version (13, 0)\n"
        "cupy.cuda.compiler.CompileException: nvrtc: error: invalid value for --gpu-architecture (-arch)",
        "nvcc-arch-unknown",
        r"cupy-cuda12x\[ctk\]",
    ),
    "numba-pip": (
        "numba.cuda.cudadrv.driver.LinkerError: [222] Call results in CUDA_ERROR_UNSUPPORTED_PTX_VERSION\n"
        "ptxas application ptx input, line 9; fatal   : Unsupported .version 8.5; current version is '8.4'",
        "ptx-newer-than-driver",
        r"pip install numba-cuda .*nvidia-cuda-nvcc-cu12==12\.4",
    ),
    "numpy-too-old": (
        "numpy 1.26.4\nValueError: numpy.dtype size changed, may indicate binary incompatibility. "
        "Expected 96 from C header, got 88 from PyObject",
        "library-mismatch",
        r"pip install -U numpy$",
    ),
    "numpy-too-new": (
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. "
        "Expected 88 from C header, got 96 from PyObject",
        "library-mismatch",
        r'"numpy<2"',
    ),
    "cudnn-without-nvrtc": (
        "Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: cannot open shared object file",
        "library-mismatch",
        r"ln -s libnvrtc\.so",
    ),
    "cudnn-in-wsl": (
        "WSL2\nCould not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file",
        "library-mismatch",
        r"LD_LIBRARY_PATH=/usr/lib/wsl/lib",
    ),
    "cudnn-of-torch": (
        "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.8.0.\njax 0.6.0, torch 2.6.0+cu124",
        "library-mismatch",
        r'"nvidia-cudnn-cu12>=9\.8"',
    ),
    "deepspeed-accepts": (
        "Installed CUDA version 12.1 does not match the version torch was compiled with 11.8 but since the APIs are "
        "compatible, accepting this combination\ntorch/csrc/python_headers.h:12: fatal error: Python.h: No such file",
        "python-headers-missing",
        r"python3\S*-dev",
    ),
    "tensorrt-driver": (
        "[TRT] CUDA initialization failure with error: 35. Please check your CUDA installation",
        "driver-too-old",
        r"Install NVIDIA driver 580\.65\.06 or newer",
    ),
    "tensorflow-plain": (
        "TensorFlow 2.12 on Ubuntu\nCannot dlopen some GPU libraries. Skipping registering GPU devices...",
        "library-mismatch",
        r'pip install -U "tensorflow\[and-cuda\]>=2\.14"',
    ),
    "tensorflow-has-wheels": (
        "$ pip install tensorflow[and-cuda]\nCannot dlopen some GPU libraries. Skipping registering GPU devices...",
        "library-mismatch",
        r"export LD_LIBRARY_PATH=\$\(python",
    ),
    "tensorflow-1": (
        "tensorflow-gpu 1.15.5 on an RTX 3090\nCould not load dynamic library 'libcudart.so.10.0'; "
        "dlerror: libcudart.so.10.0: cannot open shared object file\nCannot dlopen some GPU libraries.",
        "library-mismatch",
        r"tensorflow:\S+-tf1-py3",
    ),
    "fbgemm": (
        r'[WinError 126] The specified module could not be found. Error loading "C:\v\torch\lib\fbgemm.dll"',
        "library-mismatch",
        r"torch>=2\.4\.1",
    ),
    "onnxruntime-dll": (
        "FAIL : LoadLibrary failed with error 126 when trying to load onnxruntime_providers_cuda.dll\n"
        "Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 12.*, and the latest MSVC runtime.",
        "library-mismatch",
        r"onnxruntime-gpu\[cuda,cudnn\].*preload_dlls",
    ),
    "jax-platforms": (
        "RuntimeError: Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present. "
        "Platforms present are: cpu\nJAX_PLATFORMS=cpu",
        "gpu-not-visible",
        r"unset JAX_PLATFORMS",
    ),
    "jax-without-plug-in": (
        "RuntimeError: Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present. "
        "Platforms present are: cpu",
        "cpu-build",
        r"jax\[cuda12\]==",
    ),
    "nvcc-beside-torch": (
        "$ nvcc -cubin -arch=sm_86 kernel.cu -o k.bin && python load.py k.bin\ntorch 2.11.0+cu130\n"
        "NVIDIA H200\nCUDA error 209: no kernel image is available for execution on the device",
        "no-kernel-for-gpu",
        r"nvcc -gencode arch=compute_90,code=sm_90 \.\.\.",
    ),
    "newer-ptx-by-nvcc-beside-torch": (
        "$ nvcc -ptx -arch=compute_75 kernel.cu && python load.py k.ptx\ntorch 2.11.0+cu130\nNVIDIA H200\n"
        "ptxas application ptx input, line 9; fatal   : Unsupported .version 9.9; current version is '9.0'",
        "ptx-newer-than-driver",
        r"nvcc -gencode arch=compute_90,code=sm_90 \.\.\.",
    ),
    "larger-than-the-gpu": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 37252.90 GiB. GPU 0 has a total capacity of "
        "139.80 GiB of which 139.29 GiB is free.",
        "out-of-memory",
        r"^Make the tensor smaller",
    ),
    "ranks-and-gpus-enough": (
        "GPU 0: NVIDIA H200 (UUID: GPU-dfae42cb-c058-76fd-fb21-0aeda91051a8)\n"
        "GPU 1: NVIDIA H200 (UUID: GPU-7360235a-9bba-354c-9c7c-5c026dc51c13)\n"
        "ncclInvalidUsage\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 19000",
        "gpu-not-visible",
        r"torch\.cuda\.set_device",
    ),
    "jax-cublas": (
        "RuntimeError: jaxlib/cuda/versions_helpers.cc:72: operation cublasGetVersion(nullptr) failed: error",
        "library-mismatch",
        r"unset LD_LIBRARY_PATH",
    ),
    "nccl-wheels": (
        "ImportError: site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
        "library-shadowed",
        r"pip uninstall -y nvidia-nccl-cu11 \S+ \S+ && pip install --no-deps nvidia-nccl-cu12",
    ),
    "nccl-preloaded": (
        "$ export LD_PRELOAD=/opt/nccl/libnccl.so.2\nlibtorch_cuda.so: undefined symbol: ncclCommWindowRegister",
        "library-shadowed",
        r"unset LD_PRELOAD",
    ),
    "sglang-kernels": (
        "[sgl_kernel] CRITICAL: Could not load any common_ops library!\nsglang 0.5.2",
        "mixed-flavours",
        r'uv pip install "sglang\[all\]==0\.5\.2"',
    ),
    "own-build": (
        "torch 2.8.0+cu128\nImportError: /work/vllm/vllm/_C.abi3.so: undefined symbol: "
        "_ZN5torch3jit17parseSchemaOrNameERKSsb",
        "mixed-flavours",
        r"cd /work/vllm && .*pip install --no-build-isolation --no-deps -v -e \.",
    ),
    "bitsandbytes-variable": (
        "BNB_CUDA_VERSION=123 environment variable detected\nCould not find the bitsandbytes CUDA binary at "
        "PosixPath('/v/bitsandbytes/libbitsandbytes_cuda123.so')",
        "mixed-flavours",
        r"unset BNB_CUDA_VERSION",
    ),
    "bitsandbytes-release": (
        "CUDA SETUP: Required library version not found: libbitsandbytes_cuda117.so. Maybe you need to compile it",
        "mixed-flavours",
        r"bitsandbytes==0\.45\.5",
    ),
    "xformers-intel": (
        "xFormers can't load C++/CUDA extensions. xFormers was built for:\nPyTorch 2.8.0+cu128 with CUDA 1208 "
        "(you have 2.8.0+xpu)\npytorch version: 2.8.0+xpu",
        "mixed-flavours",
        r"pip uninstall -y xformers",
    ),
    "isolated-uv-project": (
        "$ uv sync\nfailed to build `flash-attn==2.8.3`\nModuleNotFoundError: No module named 'torch'",
        "build-isolation",
        r"(?s)\[tool\.uv\.extra-build-dependencies\]\nflash-attn = \[.*uv sync",
    ),
    "isolated-pixi-project": (
        "$ pixi install\nFailed to build: `flash-attn==2.6.3`\nModuleNotFoundError: No module named 'torch'",
        "build-isolation",
        r"(?s)\[pypi-options\]\nno-build-isolation = \[.flash-attn.\].*pixi add pytorch-gpu",
    ),
    "isolated-pip": (
        "$ pip install flash-attn\nGetting requirements to build wheel: finished with status 'error'\n"
        "ModuleNotFoundError: No module named 'torch'",
        "build-isolation",
        r"pip install torch setuptools .* && pip install --no-build-isolation flash-attn",
    ),
    "pixi-solve": (
        "$ pixi add jaxlib=*=*cuda*\njaxlib 0.6 would require __cuda *, for which no candidates were found",
        "virtual-package-missing",
        r"pixi workspace system-requirements add cuda",
    ),
    "pixi-index": (
        '[tool.pixi.pypi-dependencies]\ntorch = { version = "==2.5.1+cu121" }\nBecause there is no version of '
        "torch==2.5.1+cu121 and you require torch==2.5.1+cu121, the requirements are unsatisfiable",
        "index-confusion",
        r'torch = \{ version = "==2\.5\.1\+cu121", index = "\S+/whl/cu121" \}',
    ),
    "cmake-empty": (
        'CMake Error in CMakeLists.txt: CUDA_ARCHITECTURES is empty for target "llava_shared".',
        "arch-list-unset",
        r"-DCMAKE_CUDA_ARCHITECTURES=",
    ),
    "cuda-home-gone": (
        "$ export CUDA_HOME=/opt/none\ntorch 2.11.0+cu130\n/bin/sh: 1: /opt/none/bin/nvcc: not found",
        "cuda-home-elsewhere",
        r"unset CUDA_HOME CUDA_PATH",
    ),
    "nvcc-compiler-gone": (
        "$ export NVCC_CCBIN=/opt/none/g++\n/opt/none/g++: No such file or directory\n"
        "nvcc fatal   : Failed to preprocess host compiler properties.",
        "host-compiler-missing",
        r"unset NVCC_CCBIN",
    ),
    "hidden": (
        "$ export CUDA_VISIBLE_DEVICES=\n$ python use.py\nRuntimeError: No CUDA GPUs are available",
        "no-driver",
        r"unset CUDA_VISIBLE_DEVICES",
    ),
    "whisper-cudnn": (
        "It transcribes: Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: not",
        "library-mismatch",
        r"ctranslate2>=4\.5",
    ),
    "poetry-python": (
        "$ poetry install\nUnable to find installation candidates for torch (1.13.1)",
        "python-caps-build",
        r"poetry env use 3\.\d+ && poetry install",
    ),
    "poetry-mac": (
        "Apple M3, macOS\n$ poetry install\nUnable to find installation candidates for torch (2.5.1+cpu)",
        "no-such-build",
        r"markers = .sys_platform != 'darwin'",
    ),
    "dropped-architecture": (
        "nvcc a.cu -gencode=arch=compute_35,code=sm_35 -gencode=arch=compute_70,code=sm_70\n"
        "nvcc fatal   : Unsupported gpu architecture 'compute_35'",
        "nvcc-arch-unknown",
        r"compute_35",
    ),
    "wrapped-glibc": (
        "Ubuntu 25.04, CUDA 12.9\nmathcalls.h(79): error: exception\n  specification is "
        'incompatible with that of previous function "cospi"',
        "host-compiler-unsupported",
        r"CUDA 13\.0",
    ),
    "mig-without-instances": (
        "CUDA driver initialization failed, you might not have a CUDA gpu.\n"
        "| MIG devices: |\n|  No MIG devices found  |",
        "gpu-not-visible",
        r"nvidia-smi mig -cgi",
    ),
    "two-instances": (
        "$ export CUDA_VISIBLE_DEVICES=MIG-2e782cfd-36f2-55ff-a7d5-c6734444be2b,"
        "MIG-1b782cfd-36f2-55ff-a7d5-c6734444be2b\n"
        "ValueError: invalid literal for int() with base 10: 'MIG-2e782cfd-36f2-55ff-a7d5-c6734444be2b'",
        "gpu-not-visible",
        r"one MIG instance",
    ),
    "torchcodec": (
        "torchcodec 0.7.0\nCould not load libtorchcodec. The PyTorch version (2.9.0+cu126) is not compatible with this",
        "mixed-flavours",
        r"torchcodec==0\.[89]",
    ),
    "faiss-cublas": (
        "RTX 3090\nFaiss assertion 'err == CUBLAS_STATUS_SUCCESS' failed in runMatrixMult; details: cublas failed (13)",
        "no-kernel-for-gpu",
        r"conda install -c conda-forge faiss-gpu",
    ),
    "conda-pins": (
        "Could not solve for environment specs\npytorch 2.3.0 would require\npytorch-cuda >=11.8,<11.9 , which "
        "conflicts with any installable versions previously reported;",
        "mixed-flavours",
        r"conda create -n new -c conda-forge pytorch-gpu",
    ),
    "arm-variant": (
        "$ pixi add pytorch-gpu\npytorch 2.10.0 would require\narm-variant * sbsa, for which no candidates were found.",
        "no-such-build",
        r'pixi add "pytorch-gpu=\S+" "cuda-version=12\.9" "arm-variant=\*=tegra"',
    ),
    "onnxruntime-twice": (
        "onnxruntime==1.20.1\nonnxruntime-gpu==1.20.1\n['AzureExecutionProvider', 'CPUExecutionProvider']",
        "cpu-build",
        r'pip uninstall -y onnxruntime onnxruntime-gpu && pip install "onnxruntime-gpu\[cuda,cudnn\]',
    ),
    "triton-of-another-torch": (
        "torch 2.6.0+cu126, triton 3.3.1\n"
        "AttributeError: Cannot set attribute 'src' directly. Use '_unsafe_update_src()'",
        "triton-torch-mismatch",
        r"triton==3\.2\.0",
    ),
    "driver-below-torch": (
        "RTX 4050 and NVIDIA driver 550.163.01 (CUDA 12.4), I ran:\ntorch=2.14.0+cu130\ncuda_available=False",
        "driver-too-old",
        r"cu12\d",
    ),
    "jetson-library": (
        "Jetson Nano, JetPack 4.6\n_load_global_deps()\nOSError: libcurand.so.10: cannot open shared object file",
        "lock-incomplete",
        r"nvidia-jetpack",
    ),
}


@pytest.mark.parametrize(("report", "cause", "fix"), FIRST.values(), ids=FIRST)
def test_the_first_fix_fits(report: str, cause: str, fix: str) -> None:
    first = envsolve.diagnose(report, None).diagnoses[0]
    assert first.cause == cause
    assert re.search(fix, f"{first.remedies[0].text}\n{first.remedies[0].command or ''}"), first.remedies[0]


def test_a_driver_that_is_not_known_is_the_oldest_that_may_be_there() -> None:
    report = "RTX 4090, torch 1.12.1+cu113\nnvrtc: error: invalid value for --gpu-architecture (-arch)"
    assert "cu126" in (envsolve.diagnose(report, None).diagnoses[0].remedies[0].command or "")
