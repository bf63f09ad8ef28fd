"""Toolkits and host compilers, as nvcc, gcc, MSVC, CMake and torch's extension builder print them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Fact, Field, Observation, Scalar, Trust
from envsolve.diagnose.report.readers._words import minor
from envsolve.diagnose.report.text import Line, Log
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import HostCompiler, Toolkit

_RELEASE = re.compile(r"Cuda compilation tools, release (\d{1,2}\.\d)|\bBuild cuda_(\d{1,2}\.\d)\.r", re.IGNORECASE)
_MISMATCH = re.compile(r"detected CUDA version \((\d{1,2}\.\d{1,2})\S{0,8}\) mismatches")
_TORCHS = re.compile(r"(?:compile\s{1,4}PyTorch|^\s{0,8}PyTorch) \((\d{1,2}\.\d)")
_BINARIES = re.compile(r"Pytorch binaries were compiled with Cuda (\d{1,2}\.\d)", re.IGNORECASE)
_CMAKE_CUDA = re.compile(
    r"CUDA compiler identification is NVIDIA (\d{1,2}\.\d)|Found CUDA(?:Toolkit"
    r"|_?ToolKit)?: (\S{1,200}).{0,80}found (?:suitable )?(?:exact )?version \"(\d{1,2}\.\d)"
)
_CMAKE_HOST = re.compile(
    r"The CX?X? compiler identification is (GNU|Clang|AppleClang|MSVC) (\d{1,2}(?:\.\d{1,5}){1,2})"
)
_GCC = re.compile(
    r"^(?:\S{0,60}/)?[\w-]{0,40}?(?:gcc|g\+\+|c\+\+|cc)(?:-\d{1,2})? \([^)]{0,80}\)\s(\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)\b"
)
_GCC_V = re.compile(r"^gcc version (\d{1,2}\.\d{1,2}\.\d{1,2})\b")
_TOO_NEW = re.compile(r"installed version of (\S{1,60}) \((\d{1,2}(?:\.\d{1,2}){0,2})\) is (?:greater|less) than")
_GCC_FOLDER = re.compile(
    r"/include/(?:[\w-]{1,40}/)?c\+\+/(\d{1,2}(?:\.\d{1,2}){0,2})/|/lib/gcc/[\w-]{3,40}/(\d{1,2}(?:\.\d{1,2}){0,2})/"
)
_MSVC = re.compile(r"(?:Optimizing Compiler Version (19\.\d{2})|\\MSVC\\14\.(\d{2})\.\d{5})")
_CLANG = re.compile(r"\bclang version (\d{1,2}\.\d{1,2}\.\d{1,2})")
_FOLDER = re.compile(
    r"(/usr/local/cuda-(\d{1,2}\.\d))(?!/compat)\b|NVIDIA GPU Computing Toolkit[\\/]{1,2}CUDA[\\/]{1,2}v(\d{1,2}\.\d)"
)
_RUN_NVCC = re.compile(r"((?:/|\$)[\w./{}-]{1,200})/bin/nvcc\b")


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Each program's version."""
    for line in log.containing("cuda compilation tools", "build cuda_"):
        yield from _nvcc(line, log)
    # A build names the same folders in each of its commands: once is enough.
    places: set[str] = set()
    folders: set[tuple[str, ...]] = set()
    for line in log.containing("/bin/nvcc"):
        if (match := _RUN_NVCC.search(line.text)) and match[1] not in places:
            places.add(match[1])
            yield Observation(Toolkit(None, match[1], True), line, Trust.IMPLIED)
    for line in log.containing(
        "mismatches",
        "pytorch (1",
        "binaries were compiled",
        "compiler identification",
        "found cuda",
        "installed version of",
    ):
        yield from (Observation(fact, line, Trust.USED) for fact in _built(line.text))
    for line in log.containing("gcc", "g++", "c++", "cc (", "clang version"):
        if match := _GCC.match(line.text.lstrip("$ ")) or _GCC_V.match(line.text):
            yield Observation(HostCompiler("gcc", match[1]), line, Trust.PRINTED)
        elif (match := _CLANG.search(line.text)) and "[" not in line.text:
            yield Observation(HostCompiler("clang", match[1]), line, Trust.PRINTED)
    for line in log.containing("/c++/", "/lib/gcc/"):
        if match := _GCC_FOLDER.search(line.text):
            yield Observation(HostCompiler("gcc", match[1] or match[2]), line, Trust.IMPLIED)
    for line in log.containing("optimizing compiler version", "\\msvc\\14."):
        if match := _MSVC.search(line.text):
            yield Observation(HostCompiler("msvc", match[1] or f"19.{match[2]}"), line, Trust.PRINTED)
    for line in log.containing("/usr/local/cuda-", "gpu computing toolkit"):
        for path, version, windows in _FOLDER.findall(line.text):
            if (path, version, windows) not in folders:
                folders.add((path, version, windows))
                yield Observation(Toolkit(version or windows, path or None), line, Trust.IMPLIED)


def _nvcc(line: Line, log: Log) -> Iterator[Observation]:
    """nvcc's own line; ``ptxas --version`` and ``cuobjdump --version`` print the same."""
    match = _RELEASE.search(line.text)
    if match is None:
        return
    path = None
    for above in log.before(line, 6):
        lowered = above.text.lower()
        if "ptxas" in lowered or "ptx optimizing" in lowered or "cuobjdump" in lowered or "nvdisasm" in lowered:
            return
        if "nvcc" in lowered and (found := _RUN_NVCC.search(above.text)):
            path = found[1]
        if "cuda compiler driver" not in lowered and "nvcc" in lowered and "copyright" not in lowered:
            break
    version = match[1] or match[2]
    yield Observation(Scalar(Field.NVCC, version), line, Trust.PRINTED)
    yield Observation(Toolkit(version, path, True), line, Trust.PRINTED)


def _built(text: str) -> Iterator[Fact]:
    if match := _MISMATCH.search(text):
        yield Scalar(Field.NVCC, match[1])
        yield Toolkit(match[1], None, True)
    if match := _TORCHS.search(text) or _BINARIES.search(text):
        yield Scalar(Field.TORCH_CUDA, match[1])
    if match := _CMAKE_CUDA.search(text):
        version = match[1] or match[3]
        yield Toolkit(version, None, True if match[1] else None)
        if match[1]:
            yield Scalar(Field.NVCC, version)
    if match := _CMAKE_HOST.search(text):
        kind = {"GNU": "gcc", "MSVC": "msvc"}.get(match[1], "clang")
        yield HostCompiler(kind, minor(match[2]) if kind == "msvc" else match[2])
    if match := _TOO_NEW.search(text):
        yield HostCompiler("clang" if "clang" in match[1] else "gcc", match[2])
