"""Where the CUDA tools of an environment are: its NVRTC, and the nvcc that its user would start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

NVRTC = re.compile(r"(?:lib)?nvrtc(?:64_|-[0-9a-f]+\.so\.|\.so\.)(\d\d)[\d._]*(?:\.dll)?")
NVCC = "nvcc.exe" if sys.platform == "win32" else "nvcc"
# Of NVIDIA's wheels for CUDA 12 and 13, of torch's own wheels that bundle CUDA; and of conda (the prefix).
WHEEL_FOLDERS = ("nvidia/*/lib", "nvidia/*/bin", "nvidia/*/bin/*", "torch/lib")
PREFIX_FOLDERS = ("lib", "Library/bin")


def nvrtc_path():
    """Find the environment's own NVRTC, that of torch's CUDA where torch is installed; None where there is none."""
    major = torch_cuda_major()
    found = [path for folder in folders() for path in sorted(folder.glob("*nvrtc*")) if NVRTC.fullmatch(path.name)]
    return next((path for path in found if major in (None, NVRTC.fullmatch(path.name).group(1))), None)


def folders():
    """Yield the folders in which an environment keeps CUDA libraries, in the order of its path."""
    for entry in sys.path:
        for pattern in WHEEL_FOLDERS:
            yield from sorted(Path(entry or ".").glob(pattern))
    for name in PREFIX_FOLDERS:
        yield Path(sys.prefix) / name


def torch_cuda_major():
    """Read the CUDA major of torch out of its ``version.py``, without importing it; None without a CUDA build."""
    for entry in sys.path:
        try:
            text = (Path(entry or ".") / "torch" / "version.py").read_text(encoding="utf-8")
        except OSError:
            continue
        match = re.search(r"(?m)^cuda\b[^=\n]*= *'(\d+)\.", text)
        return match.group(1) if match else None
    return None


def nvcc_path():
    """Find the nvcc that a user of the environment would start, and whether it is the environment's or named for it.

    A toolkit of the system that nobody named may be of any age, and is nothing that the environment answers for.
    """
    for name in ("CUDA_HOME", "CUDA_PATH"):
        path = Path(os.environ.get(name) or "/nonexistent") / "bin" / NVCC
        if path.is_file():
            return path, True
    own = [Path(sys.prefix) / "bin" / NVCC, Path(sys.prefix) / "Library" / "bin" / NVCC]
    own += [folder / NVCC for entry in sys.path for folder in sorted(Path(entry or ".").glob("nvidia/*/bin"))]
    found = next((path for path in own if path.is_file()), None)
    if found:
        return found, True
    for text in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if text and Path(text).is_file():
            return Path(text), False
    return None, False


def release(nvcc):
    """The release of an nvcc, ``13.0.88``; None where it does not say."""
    text = subprocess.run([str(nvcc), "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    match = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    return match.group(1) if match else None


def seen(nvcc):
    """The nvcc that compiled, for a plan to be held against."""
    cuda = release(nvcc)
    return {"nvcc": str(nvcc), "cuda_home": str(Path(nvcc).parent.parent), **({"nvcc_cuda": cuda} if cuda else {})}
