"""Errors provoked on an H100 (driver 580.159.04, torch 2.11.0+cu130, CUDA 13.0), as they were printed there.

``tests/recorded/gpu/`` holds them whole, with folders renamed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import envsolve

RECORDED = Path(__file__).parents[1] / "recorded" / "gpu"
CAUSES = {
    "ptx-newer": "ptx-newer-than-driver",
    "nvcc-wrong-arch": "no-kernel-for-gpu",
    "nvcc-unknown-arch": "nvcc-arch-unknown",
    "extension-wrong-arch": "no-kernel-for-gpu",
    "extension-unknown-arch": "nvcc-arch-unknown",
    "compat-old": "compat-libcuda",
    "stub-libcuda": "no-driver",
    "triton-ptxas-11.7": "triton-ptxas-lacks-arch",
    "triton-no-compiler": "host-compiler-missing",
    "hidden-gpu": "no-driver",
    "tensor-10000-cubed": "out-of-memory",
    "out-of-memory": "out-of-memory",
    "host-compiler": "host-compiler-missing",
    "cuda-home": "cuda-home-elsewhere",
    "wrong-device": None,
    "index-assert": None,
    "healthy": None,
    "triton-healthy": None,
    "collect-env": None,
    "nvidia-smi": None,
}


def test_every_recording_is_told() -> None:
    assert {path.stem for path in RECORDED.glob("*.txt")} == set(CAUSES)


@pytest.mark.parametrize(("name", "cause"), CAUSES.items())
def test_the_cause_of_a_real_error(name: str, cause: str | None) -> None:
    found = envsolve.diagnose((RECORDED / f"{name}.txt").read_text(encoding="utf-8"))
    assert (found.diagnoses[0].cause if found.diagnoses else None) == cause
