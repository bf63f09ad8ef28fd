"""Toolkits and host compilers, as nvcc, compilers, CMake and extension builders print them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import VERSION, Fact, Field, Observation, Readers, Scalar, Trust
from envsolve.diagnose.report.text import Line, Log
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import HostCompiler, Toolkit

READERS = Readers()

_RELEASE = re.compile(r"Cuda compilation tools, release (\d{1,2}\.\d)|\bBuild cuda_(\d{1,2}\.\d)\.r", re.IGNORECASE)
_RUN_NVCC = re.compile(r"((?:/|\$)[\w./{}-]{1,200})/bin/nvcc\b")
_OTHER_TOOL = re.compile("ptxas|ptx optimizing|cuobjdump|nvdisasm")
_DIRECTORY = re.compile(
    r"(/usr/local/cuda-(\d{1,2}\.\d))(?!/compat)\b|NVIDIA GPU Computing Toolkit[\\/]{1,2}CUDA[\\/]{1,2}v(\d{1,2}\.\d)"
)


@READERS.log
def _releases(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    for line in log.containing("cuda compilation tools", "build cuda_"):
        if match := _RELEASE.search(line.text):
            yield from _nvcc(match[1] or match[2], line, log)


def _nvcc(version: str, line: Line, log: Log) -> Iterator[Observation]:
    """nvcc's own line; ``ptxas --version`` and ``cuobjdump --version`` print the same."""
    path = None
    for above in log.before(line, 6):
        lowered = above.text.lower()
        if _OTHER_TOOL.search(lowered):
            return
        if "nvcc" in lowered and (found := _RUN_NVCC.search(above.text)):
            path = found[1]
        if "cuda compiler driver" not in lowered and "nvcc" in lowered and "copyright" not in lowered:
            break
    yield Observation(Scalar(Field.NVCC, version), line, Trust.PRINTED)
    yield Observation(Toolkit(version, path, True), line, Trust.PRINTED)


@READERS.log
def _directories(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Each directory of a toolkit, at its first place only: a build names the same ones in each of its commands."""
    found: set[Toolkit] = set()
    for line in log.containing("/bin/nvcc", "/usr/local/cuda-", "gpu computing toolkit"):
        run = _RUN_NVCC.search(line.text)
        toolkits = [Toolkit(None, run[1], True)] if run else []
        toolkits += [Toolkit(v or windows, path or None) for path, v, windows in _DIRECTORY.findall(line.text)]
        for toolkit in toolkits:
            if toolkit not in found:
                found.add(toolkit)
                yield Observation(toolkit, line, Trust.IMPLIED)


# What a build found, or expected: the versions that decided.
READERS.patterns(
    Trust.USED,
    ("mismatches", "pytorch (1", "binaries were compiled", "compiler identification", "found cuda"),
    r"detected CUDA version \((?P<nvcc>\d{1,2}\.\d{1,2})\S{0,8}\) mismatches",
    r"(?:compile\s{1,4}PyTorch|^\s{0,8}PyTorch) \((?P<cuda>\d{1,2}\.\d)",
    r"(?i)Pytorch binaries were compiled with Cuda (?P<cuda>\d{1,2}\.\d)",
    r"CUDA compiler identification is NVIDIA (?P<nvcc>\d{1,2}\.\d)",
    r"Found CUDA(?:Toolkit|_?ToolKit)?: \S{1,200}.{0,80}found (?:suitable )?(?:exact )?version"
    r" \"(?P<toolkit>\d{1,2}\.\d)",
    r"The CX?X? compiler identification is GNU (?P<gcc>\d{1,2}(?:\.\d{1,5}){1,2})",
    r"The CX?X? compiler identification is (?:Apple)?Clang (?P<clang>\d{1,2}(?:\.\d{1,5}){1,2})",
    r"The CX?X? compiler identification is MSVC (?P<msvc>\d{1,2}\.\d{1,5})",
)
READERS.patterns(
    Trust.USED,
    ("installed version of",),
    r"installed version of (?=\S{1,60} \()\S*?clang\S* \((?P<clang>\d{1,2}(?:\.\d{1,2}){0,2})\) is (?:greater|less)",
    r"installed version of (?!\S*clang)\S{1,60} \((?P<gcc>\d{1,2}(?:\.\d{1,2}){0,2})\) is (?:greater|less)",
)
READERS.patterns(
    Trust.USED,
    ("does not match the version", "runtime torch", "you have"),
    r"Installed CUDA version (?P<nvcc>\d{1,2}\.\d) does not match the version torch was compiled with"
    r" (?P<cuda>\d{1,2}\.\d)",
    r"Runtime torch version=(?P<torch>\d\.\d{1,2}(?:\.\d)?)",
    rf"PyTorch\s{{1,4}}\S{{3,40}} with CUDA \w{{1,6}} \(you have (?P<torch>{VERSION})\)",
    r"Python\s{1,4}3\.\S{1,8} \(you have (?P<python>3\.\d{1,2})\.\d{1,2}\)",
)
READERS.patterns(
    Trust.PRINTED,
    ("gcc", "g++", "c++", "cc ("),
    r"^[$ ]*(?:\S{0,60}/)?[\w-]{0,40}?(?:gcc|g\+\+|c\+\+|cc)(?:-\d{1,2})? \([^)]{0,80}\)"
    r"\s(?P<gcc>\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)\b",
    r"^gcc version (?P<gcc>\d{1,2}\.\d{1,2}\.\d{1,2})\b",
)
READERS.patterns(
    Trust.PRINTED, ("clang version",), r"\bclang version (?P<clang>\d{1,2}\.\d{1,2}\.\d{1,2})", unless=r"\["
)
READERS.patterns(
    Trust.IMPLIED,
    ("/c++/", "/lib/gcc/"),
    r"/include/(?:[\w-]{1,40}/)?c\+\+/(?P<gcc>\d{1,2}(?:\.\d{1,2}){0,2})/"
    r"|/lib/gcc/[\w-]{3,40}/(?P<gcc_2>\d{1,2}(?:\.\d{1,2}){0,2})/",
)


@READERS.text(Trust.PRINTED, "optimizing compiler version", "\\msvc\\14.")
def _msvc(text: str) -> Iterator[Fact]:
    """The compiler's version; that of its directory is 5 less."""
    if match := re.search(r"(?:Optimizing Compiler Version (19\.\d{2})|\\MSVC\\14\.(\d{2})\.\d{5})", text):
        yield HostCompiler("msvc", match[1] or f"19.{match[2]}")


# What ds_report, Unsloth, bitsandbytes and conda print of their surroundings.

READERS.patterns(
    Trust.PRINTED,
    ("... ",),
    rf"\b(?P<name>torch|deepspeed) (?:version|info) \.{{3,60}} (?P<version>{VERSION})(?![\w.+])",
    r"torch cuda (?:version|info) \.{3,60} (?P<cuda>\d{1,2}\.\d)(?![\w.+])",
    r"nvcc (?:version|info) \.{3,60} (?P<nvcc>\d{1,2}\.\d)(?![\w.+])",
)
READERS.patterns(
    Trust.PRINTED,
    ("cuda toolkit",),
    rf"(?:Py)?[Tt]orch: (?P<torch>{VERSION})\. CUDA(?::| =) (?P<cc>\d{{1,2}}\.\d)"
    rf"\. CUDA Toolkit(?::| =) (?P<cuda>\d{{1,2}}\.\d)(?:.{{0,40}}\. Triton: (?P<triton>{VERSION}))?",
)
READERS.patterns(
    Trust.PRINTED,
    ("cuda setup: detected cuda version",),
    r"CUDA SETUP: Detected CUDA version (?P<cuda_digits>\d{3})\b",
)
READERS.patterns(
    Trust.PRINTED,
    ("__cuda", "python version :"),
    r"__cuda[=@: ]{1,3}(?P<driver_cuda>\d{1,2}\.\d)\b",
    r"'__cuda'.*but the system has version '(?P<driver_cuda>\d{1,2}\.\d)'",
    r"python version : (?P<python>3\.\d{1,2})\.\d{1,2}",
)
