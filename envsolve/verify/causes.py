"""From the words of a failing check to the code of its root cause.

The table is data: the first pattern found in the text decides, so the specific stand before the general. What no
pattern names stays without a cause; the raw text is always kept beside it.
"""

from __future__ import annotations

import re

_SIGNATURES: tuple[tuple[str, str], ...] = (
    (r"Value 'sm_\w+' is not defined for option 'gpu-name'", "triton-ptxas-lacks-arch"),
    (r"ptxas fatal\s*:.*Unsupported \.version|Triton only support CUDA", "triton-ptxas-too-old"),
    (r"Unsupported \.version|unsupported toolchain|UNSUPPORTED_PTX_VERSION", "ptx-newer-than-driver"),
    (r"forward compatibility was attempted|unsupported display driver / cuda driver combination", "compat-libcuda"),
    (r"driver version is insufficient|driver on your system is too old", "driver-too-old"),
    (r"no kernel image is available|NO_BINARY_FOR_GPU", "no-kernel-for-gpu"),
    (r"device kernel image is invalid", "triton-ptxas-newer-than-driver"),
    (r"is a CPU build|not compiled with CUDA enabled", "cpu-build"),
    (r"out of memory", "out-of-memory"),
    (r"Failed to find C compiler", "host-compiler-missing"),
    (r"Python\.h: No such file", "python-headers-missing"),
    (r"cannot find -lcuda|libcuda\.so cannot found", "libcuda-not-linkable"),
    (r"no CUDA-capable device|Found no NVIDIA driver|libcuda\.so\.1 cannot be loaded|stub library", "no-driver"),
    (r"GLIBC_[\d.]+' not found", "libc-too-old"),
    (r"Triton (only )?supports devices of", "triton-gpu-unsupported"),
    (r"cannot import name .+ from 'triton", "triton-torch-mismatch"),
)
# What an error's own words leave out, for faults of other packages that have no code.
_EXPLANATIONS: tuple[tuple[str, str], ...] = (
    (
        r"No module named 'setuptools'",
        "the environment lacks setuptools, which Triton 3.0 to 3.2 import but do not require: install it",
    ),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), code) for pattern, code in _SIGNATURES)


def cause_of(text: str) -> str | None:
    """Name the root cause that an error text tells of, or None where it tells of none."""
    return next((code for pattern, code in _COMPILED if pattern.search(text)), None)


def explanation_of(text: str) -> str | None:
    """Say what an error text leaves out and its reader needs, or None."""
    return next((words for pattern, words in _EXPLANATIONS if re.search(pattern, text)), None)
