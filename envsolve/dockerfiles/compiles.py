"""What nvcc and cmake are told to compile for. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envsolve.dockerfiles.model import Command

_ARCH = re.compile(r"(?:sm|compute)_\d{2,3}[af]?\b")
_ASKS = frozenset({"-V", "--version", "-h", "--help", "--list-gpu-arch", "--list-gpu-code", "-arch-ls", "-code-ls"})
NATIVE = "native"
"""In place of code: that of the GPUs which are there as it compiles."""
EVERY = "every"
"""In place of code: all that its toolkit can make."""


def nvcc_code(command: Command) -> tuple[str, ...] | None:
    """The code that an nvcc command makes, ``("sm_75", "compute_75")``; None for another command.

    Empty where it names none, and takes its own default. Source: CUDA Compiler Driver NVCC, "Options for Steering GPU
    Code Generation": ``-arch=sm_NN`` alone is short for its SASS and its PTX.
    """
    words = command.words
    if not words or words[0].rsplit("/", 1)[-1] != "nvcc" or _ASKS & set(words):
        return None
    if not any(word.endswith(".cu") for word in words) and "cu" not in words:
        return None
    text = " ".join(words[1:])
    made: list[str] = []
    for arch, codes in re.findall(r"(?:-gencode|--generate-code)[= ]arch=([\w-]+)(?:,code=(\S+))?", text):
        made += _ARCH.findall(codes) if codes else _short(arch.replace("compute_", "sm_"))
    alone = re.search(r"(?:-arch|--gpu-architecture)[= ](\S+)", text)
    code = re.search(r"(?:^| )(?:-code|--gpu-code)[= ](\S+)", text)
    if code:
        made += _ARCH.findall(code[1])
    elif alone:
        made += _short(alone[1])
    return tuple(dict.fromkeys(made))


def cmake_code(command: Command) -> tuple[str, ...] | None:
    """Likewise for cmake's ``-DCMAKE_CUDA_ARCHITECTURES``; None where it is not given.

    Source: CMake documentation, ``CUDA_ARCHITECTURES``: a number alone is SASS and PTX, ``-real`` and ``-virtual`` one.
    """
    if not command.words or command.words[0].rsplit("/", 1)[-1] != "cmake":
        return None
    found = re.findall(r"-D ?CMAKE_CUDA_ARCHITECTURES(?::\w+)?=(\S+)", " ".join(command.words))
    if not found:
        return None
    made: list[str] = []
    for word in re.split(r"[;,]", found[-1]):
        match = re.fullmatch(r"(\d{2,3}[af]?)(?:-(real|virtual))?", word)
        if match:
            kinds = {"real": ("sm",), "virtual": ("compute",)}.get(match[2], ("sm", "compute"))
            made += [f"{kind}_{match[1]}" for kind in kinds]
        elif word in ("native", "all", "all-major"):
            made += _short(word)
        else:
            return None
    return tuple(dict.fromkeys(made))


def torch_code(value: str) -> tuple[str, ...] | None:
    """The code that ``TORCH_CUDA_ARCH_LIST`` makes; None where not every word of it is a number.

    Source: torch/utils/cpp_extension.py: numbers with ``+PTX``, between semicolons or blanks.
    """
    made: list[str] = []
    for word in filter(None, re.split(r"[;\s]+", value)):
        match = re.fullmatch(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", word)
        if match is None:
            return None
        number = f"{match[1]}{match[2]}{match[3]}"
        made += [f"sm_{number}", *([f"compute_{number}"] if match[4] else [])]
    return tuple(made) or None


def _short(value: str) -> Sequence[str]:
    if value == "native":
        return (NATIVE,)
    if value in ("all", "all-major"):
        return (EVERY,)
    return (value, value.replace("sm_", "compute_")) if _ARCH.fullmatch(value) else ()
