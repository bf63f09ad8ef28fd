"""The CUDA family that a wheel is bound to: which runtime its libraries ask the loader for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO

from envsolve.catalogue.measure import elf, pe
from envsolve.catalogue.measure.artefact import WheelFile

# Libraries whose soname or DLL name carries the CUDA major: cuDNN, cuFFT and cuSPARSE count their own versions. A copy
# that a wheel brings along has a hash in its name.
_NAMED = re.compile(
    r"lib(?:cudart|nvrtc|cublas|cublasLt|nvJitLink)(?:-[0-9a-f]+)?\.so\.(\d+)(?:\.\d+)*"
    r"|(?:cudart64|cublas64|cublasLt64)_(\d\d)\d?\.dll",
    re.IGNORECASE,
)
# What a library that loads the runtime itself names it by.
_DLL = re.compile(rb"cudart64_(\d\d)\d?\.dll")
_LIBRARY = re.compile(r"\.(so(\.\d+)*|dll|pyd)$")
_CHUNK = 1 << 20
_OVERLAP = 32  # more than the name of the DLL
# Compressed bytes. One small library answers for the wheel: all of them were linked in one build.
_LARGEST = 2 << 20


def cuda_major(wheel: WheelFile) -> int | None:
    """The CUDA major of a wheel, from the smallest of its libraries that names one.

    Returns:
        None where no library of up to 2 MiB (compressed) needs a library of CUDA's that tells.

    Raises:
        UsageError: A library is damaged.
    """
    sizes = {path: wheel.compressed_size(path) for path in wheel.files() if _LIBRARY.search(path)}
    for path in sorted(sizes, key=lambda name: (sizes[name], name)):
        if sizes[path] > _LARGEST:
            break
        with wheel.open(path) as file:
            major = _major_in(file, path)
        if major is not None:
            return major
    return None


def major_needed(libraries: Iterable[str]) -> int | None:
    """The CUDA major that the names of needed libraries tell: 13 for ``libcudart.so.13``; None where none does."""
    return next((int(match[1] or match[2]) for match in map(_NAMED.fullmatch, libraries) if match), None)


def _major_in(file: IO[bytes], name: str) -> int | None:
    if file.read(len(elf.MAGIC)) == elf.MAGIC:
        return major_needed(elf.read_elf(file, name).needed)
    return major_in_dll(file, name)


def major_in_dll(file: IO[bytes], name: str) -> int | None:
    """The CUDA major of a Windows library: of the DLLs that it imports, else of the one runtime that it names anywhere.

    A library with the runtime linked in imports cuBLAS alone, or nothing.

    Args:
        file: Seekable.
        name: For messages.

    Returns:
        None where it names no runtime, or several: one of them is then but in a message.

    Raises:
        UsageError: It is damaged.
    """
    file.seek(0)
    image = name.lower().endswith((".dll", ".pyd")) and file.read(len(pe.MAGIC)) == pe.MAGIC
    if image and (imported := major_needed(pe.read_pe(file, name).needed)):
        return imported
    file.seek(0)
    tail = b""
    found: set[int] = set()
    while chunk := file.read(_CHUNK):
        window = tail + chunk
        found.update(map(int, _DLL.findall(window)))
        tail = window[-_OVERLAP:]
    return found.pop() if len(found) == 1 else None
