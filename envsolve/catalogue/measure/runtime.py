"""The CUDA family that a wheel is bound to: which runtime its libraries ask the loader for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO

from envsolve.catalogue.measure import elf
from envsolve.catalogue.measure.artefact import WheelFile

# Libraries whose soname or DLL name carries the CUDA major (cuFFT and cuSPARSE count their own versions); a wheel that
# brings a copy along has a hash in its name.
_SONAME = re.compile(r"lib(?:cudart|nvrtc)(?:-[0-9a-f]+)?\.so\.(\d+)(?:\.\d+)*")
_DLL = re.compile(rb"cudart64_(\d\d)\d?\.dll")
_LIBRARY = re.compile(r"\.(so(\.\d+)*|dll|pyd)$")
_CHUNK = 1 << 20
_OVERLAP = 32  # more than the name of the DLL
# Compressed bytes. One small library answers for the wheel: all of them were linked in one build.
_LARGEST = 2 << 20


def cuda_major(wheel: WheelFile) -> int | None:
    """The CUDA major of a wheel, from the smallest of its libraries that names one.

    Returns:
        None where no library of up to 2 MiB (compressed) needs the CUDA runtime or NVRTC.

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
    return next((int(match[1]) for match in map(_SONAME.fullmatch, libraries) if match), None)


def _major_in(file: IO[bytes], name: str) -> int | None:
    if file.read(len(elf.MAGIC)) == elf.MAGIC:
        return major_needed(elf.read_elf(file, name).needed)
    file.seek(0)
    return major_in_dll(file)


def major_in_dll(file: IO[bytes]) -> int | None:
    """The CUDA major of the runtime DLL that a Windows library names, read from where the file stands.

    Returns:
        None where it names none, or several: one of them is then but in a message.
    """
    tail = b""
    found: set[int] = set()
    while chunk := file.read(_CHUNK):
        window = tail + chunk
        found.update(map(int, _DLL.findall(window)))
        tail = window[-_OVERLAP:]
    return found.pop() if len(found) == 1 else None
