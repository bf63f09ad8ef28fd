"""What the build string of a conda package says: ``py3.11_cuda12.4_cudnn9.1.0_0``, ``cpu_mkl_py312h...``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Field, Observation, Scalar, Trust
from envsolve.diagnose.report.text import Line

_TORCH = frozenset({"pytorch", "libtorch"})
_OF_A_PYTHON = _TORCH | {"torchvision", "torchaudio", "pytorch-gpu", "numpy"}
_PYTHON = re.compile(r"(?:^|_)py3\.?(\d{1,2})(?:h|_|$)")
_CUDA = re.compile(r"(?:^|_)(?:cuda_?(\d{2})\.?(\d)|cpu)(?=[_\d.]|$)")
_VERSION = re.compile(r"(3\.\d{1,2})(?:\.|$)")


def of_build(name: str, version: str, build: str, line: Line) -> Iterator[Observation]:
    """The Python of a package, and the CUDA version of torch (``none`` for CPU builds)."""
    if name == "python" and (match := _VERSION.match(version)):
        yield Observation(Scalar(Field.PYTHON, match[1]), line, Trust.PRINTED)
    if name in _OF_A_PYTHON and (match := _PYTHON.search(build)):
        yield Observation(Scalar(Field.PYTHON, f"3.{match[1]}"), line, Trust.IMPLIED)
    if name in _TORCH and (match := _CUDA.search(build)):
        cuda = f"{match[1]}.{match[2]}" if match[1] else "none"
        yield Observation(Scalar(Field.TORCH_CUDA, cuda), line, Trust.IMPLIED)
