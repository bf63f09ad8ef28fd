"""The cubins that the ``driver-cubin`` check brings are what the published assemblers make of its kernel."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from envsolve.verify.scripts import BUILT_IN
from tests.network.tools import Tools, program

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the wheels' ptxas is a program for Linux"),
]


def test_the_cubins_are_made_again_byte_by_byte(tools: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder in (BUILT_IN, BUILT_IN.with_name("shared")):
        monkeypatch.syspath_prepend(str(folder))
    cubins = dict(importlib.import_module("driver").cubins())
    kernel = tmp_path / "kernel.ptx"
    kernel.write_bytes(importlib.import_module("driver").ptx("6.0"))
    made = {}
    for wheel, archs in (("cu11==11.8.89", (50, 60, 70, 80, 90)), ("cu12==12.8.93", (100, 120))):
        folder = tmp_path / wheel
        tools.run(program("uv"), "venv", "--quiet", "--python", sys.executable, str(folder))
        python = str(folder / "bin" / "python")
        tools.uv("install", "--quiet", "--no-deps", "--python", python, f"nvidia-cuda-nvcc-{wheel}")
        (ptxas,) = folder.glob("lib/python3*/site-packages/nvidia/cuda_nvcc/bin/ptxas")
        for arch in archs:
            subprocess.run([ptxas, f"-arch=sm_{arch}", kernel, "-o", tmp_path / "made"], check=True)
            made[arch] = (tmp_path / "made").read_bytes()
    assert made == cubins
