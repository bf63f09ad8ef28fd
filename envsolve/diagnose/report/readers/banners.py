"""What tools print of their surroundings as they start or fail: Unsloth, DeepSpeed, xFormers, ComfyUI, conda."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Card, Fact, Field, Observation, Package, Scalar, Trust
from envsolve.diagnose.report.readers._gpus import GPU, clean
from envsolve.diagnose.report.readers._words import VERSION, cuda_of_number
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Toolkit

_UNSLOTH_CARD = re.compile(r"\\\\\s{1,6}/\|\s{1,8}(?:GPU: )?(\S.{2,60}?)\. (?:Num GPUs = (\d{1,2})|Max memory)")
_UNSLOTH = re.compile(
    rf"(?:Py)?[Tt]orch: ({VERSION})\. CUDA(?::| =) (\d{{1,2}}\.\d)\. CUDA Toolkit(?::| =) (\d{{1,2}}\.\d)"
)
_UNSLOTH_TRITON = re.compile(rf"\. Triton: ({VERSION})")
_DOTTED = re.compile(r"(torch|torch cuda|nvcc|deepspeed) (?:version|info) \.{3,60} ([\w.+]{3,40})")
_DEEPSPEED = re.compile(
    r"Installed CUDA version (\d{1,2}\.\d) does not match the version torch was compiled with (\d{1,2}\.\d)"
)
_RUNTIME_TORCH = re.compile(r"Runtime torch version=(\d\.\d{1,2}(?:\.\d)?)")
_XFORMERS_TORCH = re.compile(rf"PyTorch\s{{1,4}}\S{{3,40}} with CUDA \w{{1,6}} \(you have ({VERSION})\)")
_XFORMERS_PYTHON = re.compile(r"Python\s{1,4}3\.\S{1,8} \(you have (3\.\d{1,2})\.\d{1,2}\)")
_DEVICE = re.compile(
    r"Device (\d{1,2}): \"?([A-Z][\w .()/-]{2,60}?)\"?(?:, compute capability (\d{1,2}\.\d)|\s\([0-9a-f]{8}:|\s{0,3}$)"
)
_COMFY = re.compile(r"(?:Device:|Name:\**) cuda:\d{1,2} ([A-Z][\w .()/-]{2,60}?) :")
_OLLAMA = re.compile(r"\bcompute=(\d{1,2}\.\d)\b")
_OLLAMA_NAME = re.compile(r"\b(?:name|description)=\"?((?:NVIDIA|Tesla|GeForce|Quadro)[^\"=]{2,60})\"")
_OLLAMA_DRIVER = re.compile(r"\bdriver=(\d{1,2}\.\d)\b")
_NUMBA = re.compile(r"id \d{1,2}\s{1,8}b'([^']{3,60})'")
_MEMTEST = re.compile(r"Device name=([A-Z][\w .()/-]{2,60}),")
_VIRTUAL_CUDA = re.compile(r"__cuda[=@: ]{1,3}(\d{1,2}\.\d)\b")
_PIXI = re.compile(r"but the system has version '(\d{1,2}\.\d)'")
_VIRTUAL_GLIBC = re.compile(r"(?:__glibc[=@: ]{1,3}|\bglibc/)(2\.\d{1,2})\b")
_SUBDIR = re.compile(r"\bplatform\s{0,6}[:=] (linux-64|linux-aarch64|win-64)\b", re.IGNORECASE)
_SUBDIRS = {"linux-64": ("linux", "x86_64"), "linux-aarch64": ("linux", "aarch64"), "win-64": ("windows", "x86_64")}
_CONDA_PYTHON = re.compile(r"python version : (3\.\d{1,2})\.\d{1,2}")


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Versions, cards and drivers of banners, and what failing extensions say that they found."""
    for line in log.containing(
        "/|", "cuda toolkit", "... ", "__cuda", "__glibc", " glibc/", "platform", "python version :"
    ):
        yield from (Observation(fact, line, Trust.PRINTED) for fact in _printed(line.text))
    for line in log.containing("does not match the version", "runtime torch", "you have"):
        yield from (Observation(fact, line, Trust.USED) for fact in _found(line.text))
    yield from _devices(log)
    for line in log.containing("compute="):
        if (name := _OLLAMA_NAME.search(line.text)) and (capability := _OLLAMA.search(line.text)):
            card = Card(clean(name[1]), capability[1], listing=line.index)
            yield Observation(card, line, Trust.PRINTED)
            if driver := _OLLAMA_DRIVER.search(line.text):
                yield Observation(Scalar(Field.DRIVER_CUDA, driver[1]), line, Trust.PRINTED)
    for line in log.containing("highest compute capability among gpus", "cuda setup: detected cuda version"):
        if match := re.search(r"GPUs detected: (\d{1,2}\.\d)\b", line.text):
            yield Observation(Card(None, match[1]), line, Trust.PRINTED)
        elif match := re.search(r"CUDA SETUP: Detected CUDA version (\d{2})(\d)\b", line.text):
            yield Observation(Scalar(Field.TORCH_CUDA, f"{match[1]}.{match[2]}"), line, Trust.PRINTED)
    for line in log.containing("cuda driver version: 1"):
        if match := re.search(r"CUDA Driver Version: (\d{5})\b", line.text):
            yield Observation(Scalar(Field.DRIVER_CUDA, cuda_of_number(int(match[1]))), line, Trust.PRINTED)


def _printed(text: str) -> Iterator[Fact]:
    if match := _UNSLOTH_CARD.search(text):
        yield Card(clean(match[1]), count=max(1, int(match[2] or 1)))
    if match := _UNSLOTH.search(text):
        yield Package("torch", match[1])
        yield Card(None, match[2])
        yield Scalar(Field.TORCH_CUDA, match[3])
        if triton := _UNSLOTH_TRITON.search(text):
            yield Package("triton", triton[1])
    if match := _DOTTED.search(text):
        yield from _deepspeed(match[1], match[2])
    if match := _VIRTUAL_CUDA.search(text):
        yield Scalar(Field.DRIVER_CUDA, match[1])
    if "'__cuda'" in text and (match := _PIXI.search(text)):
        yield Scalar(Field.DRIVER_CUDA, match[1])
    if match := _VIRTUAL_GLIBC.search(text):
        yield Scalar(Field.LIBC, f"glibc {match[1]}")
    if match := _SUBDIR.search(text):
        os, arch = _SUBDIRS[match[1].lower()]
        yield Scalar(Field.OS, os)
        yield Scalar(Field.ARCH, arch)
    if match := _CONDA_PYTHON.search(text):
        yield Scalar(Field.PYTHON, match[1])


def _deepspeed(label: str, value: str) -> Iterator[Fact]:
    """A line of ``ds_report``."""
    if label in {"torch", "deepspeed"} and re.fullmatch(VERSION, value):
        yield Package(label, value)
    elif label == "torch cuda" and re.fullmatch(r"\d{1,2}\.\d", value):
        yield Scalar(Field.TORCH_CUDA, value)
    elif label == "nvcc" and re.fullmatch(r"\d{1,2}\.\d", value):
        yield Scalar(Field.NVCC, value)
        yield Toolkit(value, None, True)


def _found(text: str) -> Iterator[Fact]:
    """What an extension says that it found in place of what it was built for."""
    if match := _DEEPSPEED.search(text):
        yield Scalar(Field.NVCC, match[1])
        yield Toolkit(match[1], None, True)
        yield Scalar(Field.TORCH_CUDA, match[2])
    if match := _RUNTIME_TORCH.search(text):
        yield Package("torch", match[1])
    if match := _XFORMERS_TORCH.search(text):
        yield Package("torch", match[1])
    if match := _XFORMERS_PYTHON.search(text):
        yield Scalar(Field.PYTHON, match[1])


def _devices(log: Log) -> Iterator[Observation]:
    """``Device 0: NVIDIA H100, compute capability 9.0``, and the single-card lines of other tools."""
    listing, last = 0, -1
    for line in log.containing("device ", "cuda:", "id "):
        if match := _DEVICE.search(line.text):
            if not GPU.match(match[2]):
                continue
            if int(match[1]) <= last or last < 0:
                listing = line.index
            last = int(match[1])
            yield Observation(Card(clean(match[2]), match[3], listing=listing), line, Trust.PRINTED)
        elif match := _COMFY.search(line.text) or _NUMBA.search(line.text) or _MEMTEST.search(line.text):
            yield Observation(Card(clean(match[1])), line, Trust.PRINTED)
