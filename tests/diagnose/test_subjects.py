"""The subject of a diagnosis is what the error names: cuDNN, TensorFlow or the C library, not torch by default."""

from __future__ import annotations

import pytest

import envsolve

TF = "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0."
JAX = "Loaded runtime CuDNN library: 9.10.1 but source was compiled with: 9.13.1."
CONDA = """# conda list
cudnn                    9.10.1.4         h7d33bf5_0        conda-forge
jax                      0.7.2            pyhd8ed1ab_0      conda-forge
"""
MIXED = "RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"
LIBC = 'mathcalls.h(206): error: exception specification is incompatible with that of previous function "rsqrt"'


@pytest.mark.parametrize(
    ("text", "cause", "said", "never"),
    [
        (f"{TF}\n'cuModuleLoadData' failed with 'CUDA_ERROR_INVALID_PTX'", "no-kernel-for-gpu", "nvcr.io", "driver 5"),
        (TF, "harmless-arch-warning", "first start", "nvcr.io"),
        (f"{JAX}\n{CONDA}", "library-mismatch", "cudnn>=9.13", "LD_LIBRARY_PATH"),
        (f"{JAX}\nnvidia-cudnn-cu12==9.10.1.4", "library-mismatch", "nvidia-cudnn-cu12>=9.13", "conda"),
        (JAX, "library-shadowed", "LD_LIBRARY_PATH", "conda install"),
        (
            f"{MIXED}\ninit: /lib/x86_64-linux-gnu/libcudnn_ops.so.9",
            "library-mismatch",
            "apt-get",
            "unset LD",
        ),
        (f"{MIXED}\n/srv/v/lib/libcudnn_graph.so.9", "library-mismatch", "unset LD", "apt-get"),
        (f"{LIBC}\nldd (GNU libc) 2.42", "host-compiler-unsupported", "CUDA 13.2", "gcc-10"),
    ],
)
def test_the_fix_is_for_what_failed(text: str, cause: str, said: str, never: str) -> None:
    first = envsolve.diagnose(text).diagnoses[0]
    told = " ".join(f"{fix.text} {fix.command or ''}" for fix in first.remedies)
    assert first.cause == cause
    assert said in told
    assert never not in told
