"""How the names of GPU libraries and of the packages that hold them begin and end.

These patterns classify names that nothing lists: a file on disk, a package of a new release. Versions, pairs and other
facts of single packages are in ``index_data/``. The module imports no reader, which is slow.
"""

from __future__ import annotations

import re

LIBRARY_FILE = re.compile(r"\.(?:so(?:\.\d+)*|dll|pyd)$")
"""How the name of a library's file ends."""
CUDA_NAME = r"lib(?:cu(?:da|blas|dnn|fft|rand|solver|sparse|pti|file|dss|tensor)|nv|nccl)"
"""How the names of the toolkit's and the driver's libraries begin."""
ACCELERATOR_LIBRARY = re.compile(CUDA_NAME + r"[\w-]*\.so\.\d+")
"""The soname of a library of CUDA or of its driver, ``libcublas.so.12``."""
DRIVER_LIBRARY = re.compile(r"lib(?:cuda|nvidia-[\w-]+|nvcuvid|nvoptix)\.so(?:\.\d+)*")
"""The file name of a library that comes with the driver, which a machine without a GPU need not have."""
GPU_LIBRARY = re.compile(rf"lib(?:torch|c10)|{CUDA_NAME}")
"""How the names of torch's and NVIDIA's libraries begin."""
_TOOLKIT = ("nvidia-", "cuda-")
_RUNTIME = (*_TOOLKIT, "triton", "pytorch-triton")


def is_toolkit_package(name: str) -> bool:
    """Whether a package on a Python index holds a part of the toolkit: ``nvidia-cublas-cu12``, ``cuda-toolkit``.

    Args:
        name: A normalised name, or a requirement that begins with one.
    """
    return name.startswith(_TOOLKIT)


def is_runtime_package(name: str) -> bool:
    """Whether a package on a Python index holds what torch needs at run time: a part of the toolkit, or Triton.

    Args:
        name: A normalised name, or a requirement that begins with one.
    """
    return name.startswith(_RUNTIME)
