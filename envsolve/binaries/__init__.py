"""Measuring artefacts: what CUDA code, tools and dependencies a published or installed file really carries.

Nothing here imports what it measures or needs a GPU. Wheels are read through any seekable file, so that one on a server
costs the few members that hold the answer.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import IO

from envsolve.binaries import tools
from envsolve.binaries.files import WheelFile
from envsolve.binaries.library import read_library
from envsolve.binaries.measure import measure_environment, measure_libraries, measure_package
from envsolve.binaries.model import Assembler, Library, Measurement
from envsolve.errors import UsageError

__all__ = ["Assembler", "Library", "Measurement", "measure", "measure_path", "measure_wheel", "measure_wheel_libraries"]

# The largest wheels hold 4 GiB; what is far larger takes minutes to look through, and is none.
_LARGEST = 32 << 30


def measure_path(path: Path, *, every: bool = False) -> Measurement:
    """Measure what is at a local path: a wheel, a shared library, a ``ptxas``, an environment or ``site-packages``.

    Args:
        path: Where.
        every: As for :func:`package.measure_package`.

    Raises:
        UsageError: There is nothing there, or nothing that can be measured.
    """
    try:
        kind = path.stat()
        if stat.S_ISDIR(kind.st_mode):
            return measure_environment(path, every=every)
        if not stat.S_ISREG(kind.st_mode):
            raise UsageError(f"{path} is a pipe or a device, not a file")
        if kind.st_size > _LARGEST:
            raise UsageError(f"{path} is larger than {_LARGEST >> 30} GiB: that is no wheel, and no library")
        with path.open("rb") as file:
            return measure(file, path.name, every=every)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def measure(file: IO[bytes], name: str, *, every: bool = False) -> Measurement:
    """Measure one file: a wheel, a ``ptxas`` or a shared library, told apart by name.

    Args:
        file: Seekable.
        name: File name.
        every: As for :func:`package.measure_package`.

    Raises:
        UsageError: Damaged, or none of these.
    """
    if name.endswith(".whl"):
        return measure_wheel(file, name, every=every)
    if tools.is_ptxas(name):
        return Measurement(kind="program", name=name, assemblers=(tools.read_ptxas(file, name),))
    library = read_library(file, name)
    if library.machine is None and not (library.sass or library.ptx):
        raise UsageError(
            f"{name} is no wheel, shared library, fat binary or ptxas",
            hint="envsolve measures .whl, .so, .dll and .fatbin files, ptxas programs and environments",
        )
    return Measurement(kind="library", name=name, libraries=(library,))


def measure_wheel(file: IO[bytes], filename: str, *, every: bool = False) -> Measurement:
    """Measure a wheel, reading only the members that hold the answer (see :func:`package.measure_package`).

    Args:
        file: Seekable; may read from a server in ranges.
        filename: The wheel's file name.
        every: As for :func:`package.measure_package`.

    Raises:
        UsageError: Not a wheel, or damaged.
    """
    return measure_package(WheelFile(file, filename), "wheel", every=every)


def measure_wheel_libraries(file: IO[bytes], filename: str) -> tuple[Library, ...]:
    """The machine code of every library in a wheel, torch's own included; reads every library whole.

    Raises:
        UsageError: Not a wheel, or damaged.
    """
    return measure_libraries(WheelFile(file, filename))
