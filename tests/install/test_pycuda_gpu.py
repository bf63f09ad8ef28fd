"""A pycuda that envsolve compiled: a kernel of its ``SourceModule``, compiled by nvcc and run on a card."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu


def test_a_kernel_of_source_module_computes() -> None:
    pytest.importorskip(
        "pycuda", reason="pycuda is compiled for one Python and CUDA: see tests/network/test_source_builds.py"
    )
    import numpy  # type: ignore[import-not-found]
    import pycuda.autoinit  # type: ignore[import-not-found]
    import pycuda.driver as cuda  # type: ignore[import-not-found]
    from pycuda.compiler import SourceModule  # type: ignore[import-not-found]

    kernel = SourceModule("__global__ void twice(float *a) { a[threadIdx.x] *= 2; }").get_function("twice")
    values = numpy.arange(256, dtype=numpy.float32)
    found = values.copy()
    kernel(cuda.InOut(found), block=(256, 1, 1))
    assert (found == values * 2).all()
    assert pycuda.autoinit.device.compute_capability() >= (5, 0)
