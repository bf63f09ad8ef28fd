"""An environment of conda packages to damage: real rattler installs them and writes their records."""

from __future__ import annotations

from pathlib import Path

import envsolve
from envsolve import Request
from tests.condachannel import PLACEHOLDER, CondaChannel, Package, python_package

TARGET = "RTX 4090, driver 580.95.05, python 3.12, linux-x86_64, glibc 2.35"
#: File by package; the content only has the form and the size of a library. The tool has its prefix written into it.
#: The names of torch are made up, because planning chooses among torch builds of its catalogue.
FILES = {
    "libcublas": "lib/libcublas.so.13.1.0",
    "libcufft": "lib/libcufft.so.12.0.0",
    "cuda-nvrtc": "lib/libnvrtc.so.13.0.88",
    "cudnn": "lib/libcudnn_cnn.so.9.19.0",
    "nccl": "lib/libnccl.so.2.28.9",
    "libtorch_demo": "lib/libtorch_cuda.so",
    "pytorch-demo": "lib/python3.12/site-packages/torch/__init__.py",
    "triton": "lib/python3.12/site-packages/triton/_C/libtriton.so",
    "cuda-nvcc-tools": "bin/nvcc-of-demo",
}


def conda_environment(folder: Path) -> tuple[Path, list[str]]:
    """Make the environment in a directory that does not exist; return its interpreter and the files to damage."""
    packages = [python_package(), Package("python_abi", "3.12", "0_cp312", subdir="noarch")]
    for name, file in FILES.items():
        text = f"#!/bin/sh\nexec {PLACEHOLDER}/bin/nvcc\n" if file.startswith("bin/") else "\x7fELF" + name * 1000
        packages.append(Package(name, "1.0", "h0_0", files={file: text}))
    everything = Package("demo", "1.0", "h0_0", depends=("python", *FILES), subdir="linux-64")
    prefix = folder / "env"
    with CondaChannel(folder / "channels") as channel:
        channel.add(*packages, everything).fill()
        machine = envsolve.describe_target(TARGET)
        plan = envsolve.plan(Request(("demo",), manager="conda", channels=[channel.url]), [machine])
        envsolve.install(plan, prefix, manager="conda", machine=machine, check=False)
    return prefix / "bin" / "python", list(FILES.values())
