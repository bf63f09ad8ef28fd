"""First fixes that a person can carry out as they are printed: the tool, the place and the version fit the report."""

from __future__ import annotations

import pytest

from tests.diagnose.reports import assert_a_fix

_PROVIDER = (
    "[E:onnxruntime:Default, provider_bridge_ort.cc:1546 TryGetProviderInfo_CUDA] FAIL : Failed to load library "
    "libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open shared object file"
)
_CUPY = "CuPy failed to load libnvrtc.so.12: OSError: libnvrtc.so.12: cannot open shared object file"
_DEEPSPEED = (
    "CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 11.7 does not match the version torch was "
    "compiled with 12.1, unable to compile cuda/cpp extensions without a matching cuda version."
)
_TORCHCODEC = (
    "RuntimeError: Could not load libtorchcodec. The PyTorch version (2.6.0+cu124) is not compatible\n"
    "libavutil.so.59: cannot open shared object file: No such file or directory\n"
    "libavutil.so.58: cannot open shared object file: No such file or directory\n"
    "libavutil.so.57: cannot open shared object file: No such file or directory\n"
    "[end of libtorchcodec loading traceback].\n"
)
_RUNTIME_35 = "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"
#: The report, the cause that comes first, and what its first fix says or runs.
KINDS = {
    "onnxruntime beside a driver of CUDA 12": (
        f"Driver Version: 550.54.14\n{_PROVIDER}",
        "library-mismatch",
        r'pip install -U "onnxruntime-gpu\[cuda,cudnn\]>=1\.21,<1\.27" && export LD_LIBRARY_PATH',
    ),
    "onnxruntime beside a driver of CUDA 13": (
        f"Driver Version: 580.95.05\n{_PROVIDER}",
        "library-mismatch",
        r'pip install -U "onnxruntime-gpu\[cuda,cudnn\]>=1\.27"',
    ),
    "both packages of onnxruntime in a project of uv": (
        "$ uv add onnxruntime-gpu onnxruntime\n$ uv run python\n['AzureExecutionProvider', 'CPUExecutionProvider']",
        "cpu-build",
        r"uv remove onnxruntime && uv add \"onnxruntime-gpu\S+ && uv sync --reinstall-package onnxruntime-gpu",
    ),
    "cupy beside the wheels of torch": (
        f"torch 2.2.0+cu121\n{_CUPY}",
        "library-mismatch",
        r"export LD_LIBRARY_PATH=\$\(python",
    ),
    "cupy beside a torch of another CUDA": (f"torch 2.2.0+cu118\n{_CUPY}", "library-mismatch", r"cupy-cuda12x\[ctk\]"),
    "cupy in ComfyUI's portable package": (
        "ComfyUI_windows_portable\nRuntimeError: CuPy failed to load nvrtc64_120_0.dll: FileNotFoundError: Could not "
        "find module 'nvrtc64_120_0.dll' (or one of its dependencies).",
        "library-mismatch",
        r"\.\\python_embeded\\python\.exe -s -m pip install \"cupy-cuda12x\[ctk\]\"",
    ),
    "a system's nvcc without any Python": (
        "building ggml-cuda with nvcc -arch=compute_86...\nnvcc fatal   : Value 'compute_86' is not defined for option "
        "'gpu-architecture'\n/usr/bin/nvcc: returned nonzero exit status",
        "nvcc-arch-unknown",
        r"cuda-keyring\S+ && sudo dpkg -i .*cuda-minimal-build-12-\d && export CUDA_HOME=\S+ PATH=/usr/local/cuda-12",
    ),
    "CMake that is too old for native": (
        "cmake -DCMAKE_CUDA_ARCHITECTURES=native ..\nnvcc fatal   : Unsupported gpu architecture 'compute_'",
        "arch-list-unset",
        r"CMAKE_CUDA_ARCHITECTURES=\"\$\(nvidia-smi --query-gpu=compute_cap",
    ),
    "GPUs requested of a Docker without the toolkit": (
        '$ docker run --gpus all nvidia/cuda:12.4.1-base-ubuntu22.04 nvidia-smi\ncould not select device driver "" with'
        " capabilities: [[gpu]]",
        "no-driver",
        r"nvidia-container-toolkit\.list.*apt-get install -y nvidia-container-toolkit && sudo nvidia-ctk",
    ),
    "vLLM's image in a swarm": (
        "docker stack deploy -c vllm.yml llm\nimage: vllm/vllm-openai:a\nRuntimeError: Failed to infer device type",
        "no-driver",
        "nvidia-ctk runtime configure --runtime=docker --set-as-default",
    ),
    "vLLM's image in a compose file": (
        "docker compose up\nimage: vllm/vllm-openai:latest\nRuntimeError: Failed to infer device type",
        "no-driver",
        r"reservations: \{devices: \[\{driver: nvidia",
    ),
    "a Python that runs in a container": (
        "> docker exec runner /opt/env/bin/python -c \"import torch; print('torch:', torch.__version__)\"\n"
        "torch: 2.11.0+cpu\nRuntimeError: Failed to infer device type",
        "cpu-build",
        r"docker exec runner /opt/env/bin/python -m pip install torch==2\.11\.0\+cu",
    ),
    "an nvcc and a driver for CUDA 11": (
        f"{_DEEPSPEED}\n| NVIDIA-SMI 515.65.01    Driver Version: 515.65.01    CUDA Version: 11.7     |\n"
        "|   0  NVIDIA A100-SXM...  On   | 00000000:10:00.0 Off |                    0 |",
        "nvcc-torch-mismatch",
        r"pip install torch==\S+\+cu118",
    ),
    "an nvcc for CUDA 11": (_DEEPSPEED, "nvcc-torch-mismatch", r"export CUDA_HOME=/usr/local/cuda-12\.1"),
    "torchcodec without a library for FFmpeg 4": (_TORCHCODEC, "library-mismatch", r'"ffmpeg>=5,<8"'),
    "an unknown program on an old driver of Ubuntu": (
        f"Ubuntu 22.04\nDriver Version: 450.80.02\n{_RUNTIME_35}",
        "driver-too-old",
        r"sudo ubuntu-drivers install nvidia:580 && sudo reboot",
    ),
    "an unknown program on an old driver": (_RUNTIME_35, "driver-too-old", r"Install NVIDIA driver 580\.65\.06"),
    "a nightly torch beside SGLang on Blackwell": (
        "GPU 0: NVIDIA GeForce RTX 5080\nPyTorch: 2.9.0.dev20250722+cu128\nsglang: 0.4.9.post2\n"
        "ImportError: /v/lib/python3.10/site-packages/sgl_kernel/common_ops.abi3.so: undefined symbol: "
        "_ZN3c104cuda9SetDeviceEa",
        "mixed-flavours",
        r'--torch-backend cu128 "sglang\[all\]==0\.4\.9\.post2"',
    ),
    "torchvision for servers on a Jetson": (
        "Jetson Orin Nano (JetPack 6.2)\ntorch 2.5.0a0+872d972e41.nv24.08\ntorchvision 0.20.0\n"
        "NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend.",
        "mixed-flavours",
        r"torch torchvision --index-url https://pypi\.jetson-ai-lab\.io/jp6",
    ),
    "JetPack 5": (
        "NVIDIA Jetson AGX Orin\nJetPack Version: 5.1.2\nPython 3.10\n>>> print(torch.cuda.is_available())\nFalse",
        "cpu-build",
        r"python3\.8 -m pip install \S+nv23\.06-cp38-cp38-linux_aarch64\.whl",
    ),
    "jaxlib of a toolkit": (
        "pip install jax==0.4.23 jaxlib==0.4.23+cuda11.cudnn86 -f https://storage.googleapis.com/jax-releases/\n"
        "Unable to initialize backend 'cuda': Found cuSOLVER version 11002, but JAX was built against version 11401, "
        "which is newer.",
        "library-shadowed",
        r'pip install "jax\[cuda11_pip\]==0\.4\.23" -f \S+ && unset LD_LIBRARY_PATH',
    ),
    "CMake without nvcc on its path": (
        "$ sudo cmake . -B build\nCMake Error: CMAKE_CUDA_ARCHITECTURES must be valid if set.",
        "nvcc-missing",
        r"CUDACXX=/usr/local/cuda/bin/nvcc",
    ),
    "an image without cuDNN 8": (
        "FROM nvidia/cuda:12.2.2-runtime-ubuntu22.04\nRUN pip3 install faster-whisper ctranslate2==4.4.0\n"
        "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object",
        "library-mismatch",
        r"sed -i 's\|\S+\|nvidia/cuda:12\.2\.2-cudnn8-runtime-ubuntu22\.04\|' Dockerfile",
    ),
    "Visual C++'s runtime": (
        "ImportError: DLL load failed: VCRUNTIME140_1.dll was not found\nWindows 10, onnxruntime 1.10",
        "library-mismatch",
        "winget install --id Microsoft.VCRedist",
    ),
    "Visual C++'s runtime of conda": (
        "(base) C:\\ProgramData\\Anaconda3> python\nImportError: DLL load failed while importing "
        "onnxruntime_pybind11_state: A dynamic link library (DLL) initialization routine failed.",
        "library-mismatch",
        r'conda install -c conda-forge "vc14_runtime',
    ),
    "several MIG instances of a job": (
        "My HPC uses multi-instance GPU (MIG), booked with slurm (--gres=gpu:3).\n[error] Invalid CUDA device index "
        '"1" from device string ,1,2, there are 1 visible CUDA devices.',
        "gpu-not-visible",
        "export CUDA_VISIBLE_DEVICES=",
    ),
    "vLLM of an older torch": (
        "vllm 0.3.3\ntorch 2.2.1\nPython 3.10.12\nImportError: /usr/local/lib/python3.10/dist-packages/vllm/"
        "_C.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN2at4_ops15to_dtype_layout4callERKNS_6TensorE",
        "mixed-flavours",
        r"uv venv --python 3\.10 \.venv-vllm && VIRTUAL_ENV=\.venv-vllm uv pip install vllm==0\.3\.3",
    ),
    "a wheel whose name has another torch": (
        "sageattention-2.2.0.post3+cu130torch2.10.0-cp313-cp313-win_amd64.whl\nJ:\\ai\\ComfyUI_windows_portable\\"
        "python_embeded\npytorch version: 2.9.1+cu130\nDevice: cuda:0 NVIDIA GeForce RTX 4090\n"
        "DLL load failed while importing _fused: The specified module could not be found",
        "mixed-flavours",
        r"python_embeded\\python\.exe -s -m pip install torch==2\.10\.0\+cu130",
    ),
    "a pin of conda that excludes another": (
        "LibMambaUnsatisfiableError\npytorch-cuda ==12.1 ha16c6d3_5 is requested and can be installed;\n"
        "torchaudio 2.0.2 would require\n  pytorch-cuda 11.7.* , which conflicts with any installable versions\n"
        "torchaudio 2.0.2 would require\n  pytorch-cuda 11.8.* , which conflicts with any installable versions",
        "mixed-flavours",
        r"s/pytorch-cuda=\+12\.1\[\^\[:space:\]\]\*/pytorch-cuda=11\.8/",
    ),
    "an environment file for Linux on a Mac": (
        "conda env create -f environment.yaml\nPlatform: osx-arm64\n"
        "nothing provides cuda 11.7.* needed by pytorch-cuda-11.7-h67b0de4_0\nMac M2 Max",
        "no-such-build",
        r"sed -i '' -E .*pytorch-cuda.* environment\.yaml && conda env create -f environment\.yaml",
    ),
    "Singularity without --nv": (
        "$ singularity run /srv/bender.sif bender --cuda\nAssertionError: CUDA is not available.",
        "no-driver",
        r"singularity run --nv /srv/bender\.sif bender --cuda",
    ),
    "gcc for CMake": (
        "`cmake . -B build`\nerror: #error -- unsupported GNU version! gcc versions later than 12 are not supported!",
        "host-compiler-unsupported",
        r"CUDAHOSTCXX=g\+\+-12 && rm -rf build && cmake \. -B build",
    ),
    "a local version that Poetry does not find": (
        'torch = { version = "2.3.1", source = "pytorch-cpu" }\nlinux aarch64, Python 3.10, poetry install\n'
        "Unable to find installation candidates for torch (2.3.1+cpu)",
        "no-such-build",
        r"source = \"pypi\", markers = \"platform_machine == 'aarch64'\"",
    ),
    "a driver that a restart did not load": (
        "Failed to initialize NVML: Driver/library version mismatch\nTried rebooting, but it still doesn't work.",
        "driver-needs-reload",
        "dkms autoinstall && sudo reboot",
    ),
    "a driver that was updated": (
        "Failed to initialize NVML: Driver/library version mismatch",
        "driver-needs-reload",
        "Restart the machine",
    ),
    "the Fabric Manager of CentOS": (
        "CentOS 7\nnvidia-driver-latest-dkms-545.23.08-1.el7.x86_64\nNVIDIA H100 80GB HBM3\nDriver Version: 545.23.08\n"
        "Error 802: system not yet initialized",
        "driver-needs-reload",
        "yum install -y nvidia-fabric-manager-545",
    ),
    "an environment in an image": (
        "docker image ghcr.io/srv/comfy:cuda12.8\nFROM nvidia/cuda:12.8.1-runtime-ubuntu24.04 AS a\n"
        "/srv/venv/lib/python3.12/site-packages/torch/cuda/__init__.py:326: UserWarning:\n"
        "GeForce GTX 1080 Ti with CUDA capability sm_61 is not compatible with the current PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120.",
        "no-kernel-for-gpu",
        r"docker exec CONTAINER /srv/venv/bin/python -m pip install torch==",
    ),
    "an embedded Python of an unknown version": (
        "C:\\ComfyUI_windows_portable\\python_embeded\\Lib\\site-packages\\triton\\windows_utils.py:315: UserWarning: "
        "Failed to find Python libs.\ncuda_utils.c:14: error: include file 'Python.h' not found",
        "python-headers-missing",
        r"for /f %v in \('\.\\python_embeded\\python\.exe .*py_version_nodot.*xcopy",
    ),
    "cuDNN for Paddle": (
        "pip install paddlepaddle-gpu==2.5.2.post120\n(PreconditionNotMet) Cannot load cudnn shared library.",
        "library-mismatch",
        r"nvidia-cudnn-cu12==8\.\*.*ln -sf libcudnn\.so\.8 libcudnn\.so",
    ),
    "WSL without its libraries": (
        "nvidia-container-cli: mount error: stat failed: /usr/lib/wsl/lib/libcuda.so.1: no such file or directory",
        "no-driver",
        "wsl --update && wsl --shutdown",
    ),
    "an image with a driver's libraries": (
        "$ docker run --gpus all my/clara:4.0\nnvidia-container-cli: mount error: file creation failed: "
        "/var/lib/docker/overlay2/a/merged/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1: file exists: unknown.",
        "no-driver",
        r"FROM my/clara:4\.0.*rm -f .*libcuda\.so.*docker build -t image-fixed",
    ),
    "Docker Desktop without a driver": (
        "docker compose up\nWSL2, Docker Desktop\nnvidia-container-cli: initialization error: load library failed: "
        "libnvidia-ml.so.1: cannot open shared object file",
        "no-driver",
        "wsl --update",
    ),
    "a package in uv's hint": (
        "RUN pip install uv\nRUN uv sync\nNo module named 'torch'\nhint: This error likely indicates "
        "that `flash-attn@2.7.3` depends\n4.9   on `torch`, but doesn't declare it as a build dependency.",
        "build-isolation",
        r"flash-attn = \[\{ requirement = \"torch\"",
    ),
    "a program for newer drivers": (
        "GPU: Tesla V100-SXM2-16GB\nNVIDIA Driver: 535.288.01\nOllama\nCUDA error: device kernel image is invalid",
        "ptx-newer-than-driver",
        r"Install NVIDIA driver 575\S+ or newer, up to branch R580",
    ),
    "a module that is not loaded": (
        "ggml_cuda_init: failed to initialize CUDA: unknown error\nNVIDIA GeForce RTX 3090\nDriver Version: 545.29.02",
        "driver-needs-reload",
        "modprobe nvidia_uvm",
    ),
    "a project of pixi without CUDA": (
        "pixi add jaxlib=*=*cuda* jax\njaxlib would require __cuda *, for which no candidates were found.",
        "virtual-package-missing",
        r"pixi workspace system-requirements add cuda 12 && pixi add jaxlib=\*=\*cuda\* jax",
    ),
    "TensorRT from an archive": (
        "TensorRT 8.2.5.1\nImportError: libnvinfer.so.8: cannot open shared object file: No such file or directory",
        "library-mismatch",
        r"find / -name 'libnvinfer\.so\.8\*'",
    ),
    "Python as a library": (
        "trtllm-serve --help\nImportError: libpython3.10.so.1.0: cannot open shared object file: No such file",
        "library-mismatch",
        r"get_config_var\(\"LIBDIR\"\)",
    ),
    "a machine without a GPU of NVIDIA": (
        "00:02.0 VGA compatible controller: Intel Corporation CometLake-U GT2 [UHD Graphics] (rev 02)\n"
        "RuntimeError: Found no NVIDIA driver on your system.",
        "no-driver",
        "--device cpu",
    ),
    "torchvision on a Mac": (
        "macOS 15.3 arm64\ntorch 2.10.0\ntorchvision 0.24.1\nRuntimeError: operator torchvision::nms does not exist",
        "mixed-flavours",
        r"pip install --no-deps torchvision==0\.25\.0",
    ),
}


@pytest.mark.parametrize(("log", "cause", "fix"), list(KINDS.values()), ids=list(KINDS))
def test_the_first_fix_can_be_carried_out(log: str, cause: str, fix: str) -> None:
    assert_a_fix(log, cause, fix, slice(1))
