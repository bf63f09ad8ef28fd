"""Labelled values: collect_env in its variants (PyTorch, vLLM, MMCV, Detectron2, CuPy), issue templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from envsolve.diagnose.report.observation import Card, Fact, Field, Observation, Package, Scalar, Trust, Variable
from envsolve.diagnose.report.readers._gpus import counted
from envsolve.diagnose.report.readers._words import VERSION, cuda_of_number, is_related, minor, normalised, sentences
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import HostCompiler, Toolkit

_Reader = Callable[[str], Iterator[Fact]]

_LABELLED = re.compile(
    r"[^\w]{0,16}(?P<label>\w[^:=|\n]{1,44}?)[ *`_]{0,4}(?:[:|][ *`|]{0,30}|(?P<gap>\s{3,40})|\s=\s)(?P<value>\S.*)"
)
_NOT_WORD = re.compile(r"[^a-z0-9_.]+")
_VERSION = re.compile(rf"[v^\"'`]?({VERSION})(?![\w.]*[<>*])")
_NUMBER = re.compile(r"v?(\d{1,3}(?:\.\d{1,8}){0,3})\b")
_DRIVER = re.compile(r"[^\d\n]{0,30}(\d{3}(?:\.\d{1,3}){0,2})\b")
_PYTHON = re.compile(r"\D{0,20}(3\.\d{1,2})(?:\.\d|\b)")
_GCC = re.compile(r"(?:\([^)]{0,80}\)\s)?(\d{1,2}(?:\.\d{1,2}){0,2})\b")
_GLIBC = re.compile(r"(glibc|musl)[- ](\d\.\d{1,2})", re.IGNORECASE)


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """One fact or more of each line whose label is known."""
    for line in log.containing(*_WORDS):
        match = _LABELLED.match(line.text)
        if match is None:
            continue
        value = match["value"].lstrip(": ")  # columns padded to a colon
        label = _NOT_WORD.sub(" ", match["label"].lower()).strip()
        for readers, trust in ((_PROGRAMS, Trust.PRINTED), (_PEOPLE, Trust.STATED)):
            if reader := readers.get(label):
                if trust == Trust.STATED and not any(sentences(line.text)):
                    break
                yield from (Observation(fact, line, trust) for fact in reader(value))
                break
        else:
            if match["gap"] and value == match["value"] and " @/" not in value:
                continue  # a table of packages, which others read
            name = normalised(label.removesuffix(" version"))
            if " " not in name and is_related(name) and (version := _VERSION.match(value)):
                trust = Trust.PRINTED if " @/" in value else Trust.STATED  # Detectron2 adds the place
                yield Observation(Package("torch" if name == "pytorch" else name, version[1]), line, trust)


def _torch(value: str) -> Iterator[Fact]:
    if match := _VERSION.match(value):
        yield Package("torch", match[1])


def _package(name: str) -> _Reader:
    def read_version(value: str) -> Iterator[Fact]:
        if match := _VERSION.match(value):
            yield Package(name, match[1])

    return read_version


def _torch_cuda(value: str) -> Iterator[Fact]:
    if match := _NUMBER.match(value):
        yield Scalar(Field.TORCH_CUDA, minor(match[1]))
    elif value.strip() == "None":
        yield Scalar(Field.TORCH_CUDA, "none")


def _runtime(value: str) -> Iterator[Fact]:
    """collect_env's "CUDA runtime version" is what ``nvcc --version`` says."""
    if (match := _NUMBER.match(value)) and "." in match[1]:
        yield Scalar(Field.NVCC, minor(match[1]))
        yield Toolkit(minor(match[1]), None, True)


def _driver(value: str) -> Iterator[Fact]:
    if match := _DRIVER.match(value):
        yield Scalar(Field.DRIVER, match[1])


def _driver_cuda(value: str) -> Iterator[Fact]:
    if match := re.match(r"(\d{4,5})\b", value):
        yield Scalar(Field.DRIVER_CUDA, cuda_of_number(int(match[1])))
    elif match := re.match(r"(\d{1,2}\.\d)\b", value):
        yield Scalar(Field.DRIVER_CUDA, match[1])


def _python(value: str) -> Iterator[Fact]:
    if match := _PYTHON.match(value):
        yield Scalar(Field.PYTHON, match[1])


def _compiler(kind: str) -> _Reader:
    def read_compiler(value: str) -> Iterator[Fact]:
        if (match := _GCC.match(value.removeprefix("gcc ").strip())) and int(match[1].split(".")[0]) > 3:
            yield HostCompiler(kind, match[1])

    return read_compiler


def _libc(value: str) -> Iterator[Fact]:
    if match := _GLIBC.match(value):
        yield Scalar(Field.LIBC, f"{match[1].lower()} {match[2]}")


def _cuda_home(value: str) -> Iterator[Fact]:
    if value.startswith(("/", "C:", "c:")):
        yield Variable("CUDA_HOME", value.split(" ")[0])


def _system(value: str) -> Iterator[Fact]:
    """Python's ``sys.platform``."""
    systems = {"linux": "linux", "win32": "windows", "darwin": "darwin"}
    if system := systems.get(value.split()[0].lower()):
        yield Scalar(Field.OS, system)


def _cards(value: str) -> Iterator[Fact]:
    for count, name in counted(value):
        yield Card(name, count=count)


def _capability(value: str) -> Iterator[Fact]:
    if match := re.match(r"(\d{1,2})\.(\d)\b|(\d{2,3})\b", value):
        digits = match[3] or match[1] + match[2]
        yield Card(None, f"{digits[:-1]}.{digits[-1]}")


_PROGRAMS: Mapping[str, _Reader] = {
    "pytorch version": _torch,
    "pytorch version gpu": _torch,
    "torch version": _torch,
    "cuda used to build pytorch": _torch_cuda,
    "cuda runtime version": _runtime,
    "nvidia driver version": _driver,
    "driver version": _driver,
    "cuda driver version": _driver_cuda,
    "cuda driver version runtime version": _driver_cuda,
    "gcc version": _compiler("gcc"),
    "clang version": _compiler("clang"),
    "libc version": _libc,
    "python version": _python,
    "gpu models and configuration": _cards,
    "vllm version": _package("vllm"),
    "cuda_home": _cuda_home,
    "sys.platform": _system,
    "device 0 compute capability": _capability,
    "cuda capability major minor version number": _capability,
}
_PEOPLE: Mapping[str, _Reader] = {
    "python": _python,
    "gpu": _cards,
    "gpus": _cards,
    "gpu model": _cards,
    "gpu type": _cards,
    "graphics card": _cards,
    "hardware": _cards,
    "driver": _driver,
    "gpu driver": _driver,
    "nvidia driver": _driver,
    "gpu driver version": _driver,
    "gcc": _compiler("gcc"),
    "gcc compiler version": _compiler("gcc"),
    "compute capability": _capability,
}
_WORDS = (
    *_PROGRAMS, "pytorch version (gpu?)", "cuda capability major/minor", "driver version / runtime", "gpu",
    "graphics card", "hardware", "driver", "gcc", "python", "torch", "vision", "version", "mmcv", "detectron2",
    "device 0", "compute cap", "jax", "numpy",
    "triton", "vllm", "xformers", "flash", "sglang", "bitsandbytes",
)  # fmt: skip
