"""Reports in the layouts of the programs that print them; machines and versions are made up."""

from __future__ import annotations

COLLECT_ENV = """\
Collecting environment information...
PyTorch version: 2.8.0+cu128
Is debug build: False
CUDA used to build PyTorch: 12.8
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.5 LTS (x86_64)
GCC version: (Ubuntu 11.4.0-1ubuntu1~22.04.2) 11.4.0
Clang version: 14.0.0-1ubuntu1.1
CMake version: version 3.31.6
Libc version: glibc-2.35

Python version: 3.12.3 (main, Feb  4 2025, 14:48:35) [GCC 13.3.0] (64-bit runtime)
Python platform: Linux-5.15.0-139-generic-x86_64-with-glibc2.35
Is CUDA available: True
CUDA runtime version: 12.4.131
CUDA_MODULE_LOADING set to: LAZY
GPU models and configuration:
GPU 0: NVIDIA GeForce RTX 3090
GPU 1: NVIDIA GeForce RTX 4090

Nvidia driver version: 570.133.07
cuDNN version: Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.7

Versions of relevant libraries:
[pip3] numpy==2.1.3
[pip3] nvidia-cublas-cu12==12.8.4.1
[pip3] torch==2.8.0
[pip3] triton==3.4.0
[conda] numpy                     2.1.3                    pypi_0    pypi
vLLM Version: 0.10.1.1
TORCH_CUDA_ARCH_LIST=7.0 7.5 8.0 8.6 9.0+PTX
LD_LIBRARY_PATH=/usr/local/cuda/lib64:/usr/local/nvidia/lib64
"""

DETECTRON2 = """\
----------------------  ------------------------------------------------------------------
sys.platform            linux
Python                  3.8.5 (default, Sep  4 2020, 07:30:14) [GCC 7.3.0]
numpy                   1.19.5
detectron2              0.5 @/home/me/miniconda3/envs/d2/lib/python3.8/site-packages/detectron2
Compiler                GCC 7.3
CUDA compiler           CUDA 10.1
detectron2 arch flags   3.7, 5.0, 6.0, 7.0, 7.5
DETECTRON2_ENV_MODULE   <not set>
PyTorch                 1.8.1+cu111 @/home/me/miniconda3/envs/d2/lib/python3.8/site-packages/torch
PyTorch debug build     False
GPU available           Yes
GPU 0,1                 GeForce RTX 2080 Ti (arch=7.5)
Driver version          460.32.03
CUDA_HOME               /usr/local/cuda-11.1
Pillow                  8.1.0
torchvision             0.9.1+cu111 @/home/me/miniconda3/envs/d2/lib/python3.8/site-packages/torchvision
torchvision arch flags  3.5, 5.0, 6.0, 7.0, 7.5, 8.0, 8.6
----------------------  ------------------------------------------------------------------
PyTorch built with:
  - GCC 7.3
  - CUDA Runtime 11.1
  - NVCC architecture flags: -gencode;arch=compute_37,code=sm_37;-gencode;arch=compute_86,code=sm_86;-gencode;\
arch=compute_86,code=compute_86
  - CuDNN 8.0.5
"""

MMCV_WINDOWS = r"""
2023-03-01 10:11:12,131 - mmdet - INFO - Environment info:
------------------------------------------------------------
sys.platform: win32
Python: 3.8.16 (default, Jan 17 2023, 22:25:28) [MSC v.1916 64 bit (AMD64)]
CUDA available: True
GPU 0: NVIDIA GeForce RTX 3060 Laptop GPU
CUDA_HOME: C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v11.1
NVCC: Cuda compilation tools, release 11.1, V11.1.74
MSVC: Microsoft (R) C/C++ Optimizing Compiler Version 19.28.29335 for x64
GCC: n/a
PyTorch: 1.8.1+cu111
TorchVision: 0.9.1+cu111
OpenCV: 4.7.0
MMCV: 1.7.1
MMCV Compiler: MSVC 192930148
MMCV CUDA Compiler: 11.1
"""

CUPY = """\
OS                           : Linux-6.8.0-60-generic-x86_64-with-glibc2.39
Python Version               : 3.11.9
CuPy Version                 : 13.3.0
NumPy Version                : 1.26.4
CUDA Root                    : /usr/local/cuda
nvcc PATH                    : /usr/local/cuda/bin/nvcc
CUDA Build Version           : 12060
CUDA Driver Version          : 12040
CUDA Runtime Version         : 12060 (linked to CuPy) / 12040 (locally installed)
Device 0 Name                : NVIDIA A40
Device 0 Compute Capability  : 86
"""

SMI = """\
Tue Mar  4 10:00:00 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.144.03             Driver Version: 550.144.03     CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   31C    P0             61W /  400W |       1MiB /  81920MiB |      0%      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0A:00.0 Off |                    0 |
| N/A   30C    P0             60W /  400W |       1MiB /  81920MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A      1923      G   /usr/lib/xorg/Xorg                              4MiB |
|    1   N/A  N/A     12345      C   python                                       1024MiB |
+-----------------------------------------------------------------------------------------+
"""

SMI_OLD_CUT = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 450.51.06    Driver Version: 450.51.06    CUDA Version: 11.0     |
|-------------------------------+----------------------+----------------------+
|   0  GeForce RTX 208...  Off  | 00000000:01:00.0  On |                  N/A |
| 27%   39C    P8     1W / 250W |    300MiB / 11016MiB |      3%      Default |
+-------------------------------+----------------------+----------------------+
|    0      1180      G   /usr/lib/xorg/Xorg                 100MiB |
"""

SMI_WINDOWS = """\
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 546.17                 Driver Version: 546.17       CUDA Version: 12.3     |
| GPU  Name                     TCC/WDDM  | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA GeForce RTX 2060      WDDM  | 00000000:01:00.0 Off |                  N/A |
| N/A   61C    P8               6W /  90W |    292MiB /  6144MiB |      0%      Default |
|    0   N/A  N/A      7512    C+G   C:\\Windows\\explorer.exe                 N/A      |
"""

SMI_NEWER = """\
| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |
|   0  NVIDIA RTX PRO 6000 Blackwell Server Edition  On | 00000000:01:00.0 Off |        0 |
"""
