"""The cause and the first fix of kinds of public reports: what is printed first works on that machine."""

from __future__ import annotations

import pytest

from tests.diagnose.reports import assert_a_fix

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
        r"source directory /srv/src/bnb.*cd / &&",
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
    "a torch\\lib of two releases": (
        'OSError: [WinError 182] The operating system cannot run %1. Error loading "D:\\ui\\python_embeded\\Lib\\'
        'site-packages\\torch\\lib\\c10.dll" or one of its dependencies.',
        "library-mismatch",
        "uninstall -y torch torchvision torchaudio &&",
    ),
    "torchvision of another torch in a portable ComfyUI": (
        "D:\\ComfyUI_cu128_50XX\\python_embeded\\Lib\\site-packages\\torchvision\\io\\image.py:14: UserWarning: "
        "Failed to load image Python extension: '[WinError 127] The specified procedure could not be found'",
        "mixed-flavours",
        r"python_embeded\\python\.exe .*torch==\S+cu128 torchvision==\S+cu128 torchaudio==",
    ),
    "a companion that an index does not have": (
        "Looking in indexes: https://download.pytorch.org/whl/cu132\nCollecting torch\nCollecting "
        "torchvision\nERROR: Could"
        " not find a version that satisfies the requirement torchaudio (from versions: none)\n`pip install --index-url "
        "https://download.pytorch.org/whl/cu132 torch torchvision torchaudio`",
        "no-such-build",
        r"torch==\S+ torchvision==\S+ torchaudio==",
    ),
    "CCCL of CUDA 13": (
        'cuda_fp16.h(81): error: identifier "NV_IF_ELSE_TARGET" is undefined',
        "toolkit-headers-missing",
        "include/cccl",
    ),
    "llama.cpp for the CPU": (
        "the install ends well but it is a cpu version of llama-cpp-python",
        "cpu-build",
        "GGML_CUDA=on",
    ),
    "CMake and the distribution's nvcc": (
        "$ CMAKE_ARGS=-DGGML_CUDA=on pip install llama-cpp-python\nCMake Error at CMakeDetermineCUDACompiler.cmake:227 "
        "(message):\n  Couldn't find CUDA library root.",
        "cuda-home-elsewhere",
        "CUDACXX=/usr/local/cuda/bin/nvcc && CMAKE_ARGS=-DGGML_CUDA=on pip install",
    ),
    "CMake without nvcc": (
        "CMake Error at CMakeDetermineCUDACompiler.cmake:603 (message):\n  Failed to detect a default CUDA "
        "architecture.",
        "nvcc-missing",
        "CUDACXX=/usr/local/cuda/bin/nvcc",
    ),
    "mmcv for another torch": (
        "pip install torch==2.3.0 torchvision==0.18.0 --index-url https://download.pytorch.org/whl/cu121\n"
        "import mmcv.ops\nModuleNotFoundError: No module named 'mmcv._ext'",
        "mixed-flavours",
        r"mmcv==2\.2\.0 -f \S+/cu121/torch2\.3/",
    ),
    "mmdet takes no mmcv of a newer torch": (
        "torch 2.2.0\nmmdet 3.3.0\nImportError: DLL load failed while importing _ext: The specified module "
        "could not be found.",
        "mixed-flavours",
        r"torch==2\.1\.2.*mmcv==2\.1\.0",
    ),
    "torchaudio for CUDA beside the CPU torch": (
        "pip install torch --index-url https://download.pytorch.org/whl/cpu\nOSError: libcudart.so.13: cannot "
        "open shared "
        "object file: No such file or directory\ntorch 2.11.0+cpu\ntorchaudio 2.11.0",
        "mixed-flavours",
        r"torchaudio==2\.11\.0\+cpu",
    ),
    "tiny-cuda-nn beside a CPU torch": (
        "OSError: Unknown compute capability. Specify the target compute capabilities in the TCNN_CUDA_ARCHITECTURES "
        "environment variable or install PyTorch with the CUDA backend to detect it automatically.",
        "cpu-build",
        r"torch==\d",
    ),
    "a torch for servers on an Orin": (
        "Jetson AGX Orin, JetPack 6.1\nRuntimeError: CUDA error: no kernel image is available for execution on "
        "the device",
        "no-kernel-for-gpu",
        "pypi.jetson-ai-lab.io/jp6",
    ),
    "a torch that does not know the GPU of a build": (
        "PyTorch 1.6.0, nvidia 3090\nUnknown CUDA arch (8.6) or GPU not supported",
        "nvcc-arch-unknown",
        r"torch==(?!1\.6)",
    ),
    "the nvcc of the environment is the right one": (
        "torch 2.1.2+cu118\nnvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 11.8, V11.8.89\n"
        "RuntimeError:\nThe detected CUDA version (12.2) mismatches the version that was used to "
        "compile\nPyTorch (11.8).",
        "cuda-home-elsewhere",
        r"CUDA_HOME=\$\(dirname",
    ),
    "a mismatch that DeepSpeed was told to allow": (
        "torch/csrc/python_headers.h:12:10: fatal error: Python.h: No such file or directory\n[WARNING] DeepSpeed Op "
        "Builder: Installed CUDA version 12.2 does not match the version torch was compiled with 11.8.Detected "
        "`DS_SKIP_CUDA_CHECK=1`: Allowing this combination of CUDA, but it may result in unexpected behavior.",
        "python-headers-missing",
        "python3.*-dev",
    ),
    "a web UI that imports torchvision and xformers": (
        'venv "D:\\webui-forge\\venv\\Scripts\\Python.exe"\nLaunching Web UI with arguments: --xformers\n'
        "NVIDIA GeForce RTX 5060 Ti with CUDA capability sm_120 is not compatible with the current PyTorch "
        "installation.\n"
        "pytorch version: 2.6.0+cu124",
        "no-kernel-for-gpu",
        r'"D:\\webui-forge\\venv\\Scripts\\Python.exe" -m pip install .*torch==\S+ torchvision==\S+ xformers==',
    ),
    "a DLL of an extension for another torch": (
        "The procedure entry point ?_singleton@UndefinedTensorImpl@c10@@0U12@A could not be located in the "
        "dynamic link "
        "library D:\\ui\\Lib\\site-packages\\xformers\\_C.pyd.\ntorch 2.8.0+cu128\nxformers 0.0.30",
        "mixed-flavours",
        "xformers",
    ),
    "numba without conda": (
        "I use numba without conda.\nnumba.cuda.cudadrv.driver.LinkerError: [222] Call to cuLinkAddData results "
        "in UNKNOWN_CUDA_ERROR\nptxas "
        "application ptx input, line 9; fatal   : Unsupported .version 7.4; current version is '7.2'",
        "ptx-newer-than-driver",
        "driver 470",
    ),
    "pixi's form of a limit": (
        "$ pixi run python\nOSError: libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent",
        "library-mismatch",
        'mkl = "<2024',
    ),
    "vllm for NVIDIA beside a torch for AMD": (
        "AMD Radeon 8050S\nvllm 0.12.0 requires torch==2.9.0, but you have torch 2.10.0.dev20251113+rocm7.1 which is "
        "incompatible.",
        "torch-replaced",
        "pip uninstall -y vllm",
    ),
    "memory that ends while GPUs are counted": (
        "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
        "before calling NumCudaDevices() that might have already set an error? Error 2: out of memory",
        "driver-needs-reload",
        "wsl --update",
    ),
    "a GPU that no torch of the catalogue has code for": (
        "Tesla K40m\nPyTorch version: 1.3.1\nCUDA used to build PyTorch: 10.1\nRuntimeError: CUDA error: no "
        "kernel image is "
        "available for execution on the device",
        "no-kernel-for-gpu",
        "No torch in the catalogue",
    ),
    "CTranslate2 without cuBLAS on Linux": (
        "RuntimeError: Library libcublas.so.12 is not found or cannot be loaded",
        "library-mismatch",
        "nvidia-cublas-cu12.*LD_LIBRARY_PATH",
    ),
    "CTranslate2 without cuBLAS on Windows": (
        "RuntimeError: Library cublas64_12.dll is not found or cannot be loaded",
        "library-mismatch",
        r"nvidia-cublas-cu12.*set .PATH=",
    ),
    "CTranslate2 for CUDA 11": (
        "RuntimeError: Library cublas64_11.dll is not found or cannot be loaded",
        "library-mismatch",
        "ctranslate2>=4",
    ),
    "an engine of another TensorRT": (
        "Error Code 1: Serialization (Serialization assertion stdVersionRead == serializationVersion failed.Version "
        "tag does not match. Note: Current Version: 228, Serialized Engine Version: 236)",
        "library-mismatch",
        "trtexec",
    ),
    "an extension without its CUDA code": (
        "RuntimeError: Not compiled with GPU support\npytorch3d/ops/knn.py",
        "cpu-build",
        r"FORCE_CUDA=1 .*git\+https://github.com/facebookresearch/pytorch3d",
    ),
    "Triton for Windows beside an embedded Python": (
        "CalledProcessError: Command "
        "'['D:\\\\ui\\\\python_embeded\\\\Lib\\\\site-packages\\\\triton\\\\runtime\\\\tcc\\\\tcc.exe'"
        ", 'cuda_utils.c', '-shared', '-lcuda', '-lpython312']' returned non-zero exit status 1.",
        "python-headers-missing",
        "xcopy",
    ),
    "Triton for Windows without a toolkit": (
        ">>> import triton\nWARNING: Failed to find CUDA.",
        "nvcc-missing",
        "triton-windows",
    ),
    "MSVC without its headers": (
        "main.c(7): fatal error C1083: Cannot open include file: 'stddef.h': No such file or directory",
        "host-compiler-missing",
        "vcvars64",
    ),
    "Triton from the index on Windows": (
        "Windows 11\nERROR: No matching distribution found for triton",
        "no-such-build",
        "triton-windows",
    ),
    "NVIDIA's wheels in a lock of another system": (
        "RuntimeError\n\nUnable to find installation candidates for nvidia-cublas-cu11 (11.10.3.66)",
        "lock-incomplete",
        "torch>=2",
    ),
    "CPU companions of another release": (
        "torchvision 0.24.1+cpu requires torch==2.9.1, but you have torch 2.10.0+cpu which is incompatible.",
        "mixed-flavours",
        r"torchvision==0\.25\.0\+cpu",
    ),
    "numba by the name of its linker": (
        "numba with conda, GTX 1080\nLinkerError: [218] Call to cuLinkAddData results in UNKNOWN_CUDA_ERROR\nptxas "
        "application ptx input, line 9; fatal   : Unsupported .version 6.3; current version is '6.1'",
        "ptx-newer-than-driver",
        "conda install .*cudatoolkit",
    ),
    "CMake of a pip install without architectures": (
        '$ CMAKE_ARGS="-DLLAMA_CUBLAS=on" pip install llama-cpp-python\nCMake Error in CMakeLists.txt:\n'
        '  CUDA_ARCHITECTURES is empty for target "llava".',
        "arch-list-unset",
        r'CMAKE_ARGS="-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=\$\(nvidia-smi .*\)" pip install llama-cpp-python',
    ),
    "an extension below its sources": (
        f"ImportError: /srv/knn_repo/knn/csrc/_ext/knn/knn.so: {_SYMBOL}",
        "mixed-flavours",
        "cd /srv/knn_repo &&",
    ),
    "the variant that a sentence tells of": (
        "GTX 1080 and PyTorch 2.8.0 + cu129\nCUDA error: no kernel image is available for execution on the device",
        "no-kernel-for-gpu",
        r"torch==2\.8\.0\+cu126",
    ),
    "a release of PyTorch's LTS index": (
        "$ pip install torch==1.8.2+cu111\nPython 3.8.10\nERROR: No matching distribution found for torch==1.8.2+cu111",
        "index-confusion",
        r"torch==1\.8\.2\+cu111 --index-url \S+/whl/lts/1\.8/cu111",
    ),
    "a CUDA build on a Mac": (
        "me@MacBook-Pro % pip install torch==2.1.0+cu118 torchvision==0.16.0+cu118\n"
        "ERROR: No matching distribution found for torch==2.1.0+cu118",
        "no-such-build",
        r"pip install torch==2\.1\.0 torchvision==0\.16\.0$",
    ),
    "a CUDA index on a Mac": (
        "on my MacBook: pip3 install torch --index-url https://download.pytorch.org/whl/cu126\n"
        "ERROR: No matching distribution found for torch",
        "no-such-build",
        r"pip install torch$",
    ),
    "a CUDA build in a lock on a Mac": (
        "error: Distribution `torch==2.7.1+cu128 @ registry+https://download.pytorch.org/whl/cu128` can't be installed "
        "because it doesn't have a source distribution or wheel for the current platform\n"
        "hint: You're on macOS (`macosx_15_0_arm64`), but `torch` (v2.7.1+cu128) only has wheels for the following "
        "platforms: `manylinux_2_28_x86_64`",
        "no-such-build",
        "sys_platform != 'darwin'",
    ),
    "FlashAttention beside an old nvcc": (
        "RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.  Note: make sure nvcc has a supported "
        "version by running nvcc -V.\ntorch.__version__  = 2.1.0+cu121\n"
        "Cuda compilation tools, release 11.5, V11.5.119\nERROR: Failed building wheel for flash-attn",
        "nvcc-torch-mismatch",
        "12.1",
    ),
    "a kernel package for a newer CUDA than torch's": (
        "NVIDIA GeForce RTX 5090, Python 3.11, torch 2.4.1+cu121\n"
        "RuntimeError: CUDA 12.8 or higher is required for compute capability 12.0.",
        "nvcc-torch-mismatch",
        r"torch==2\.\d+\.\d\+cu128",
    ),
}


@pytest.mark.parametrize(("log", "cause", "fix"), KINDS.values(), ids=KINDS)
def test_the_first_fix(log: str, cause: str, fix: str) -> None:
    # The variable that a message names comes before the sources.
    last = cause == "mixed-flavours" and "sources in" in fix
    assert_a_fix(log, cause, fix, slice(-1, None) if last else slice(1))
