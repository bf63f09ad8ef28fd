"""What a torch wheel asks of whoever compiles an extension against it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envsolve.catalogue.measure.artefact import Artefact, read_text
from envsolve.errors import UsageError

_ATEN = "torch/include/ATen/ATen.h"
_CXX17 = "torch/include/c10/util/C++17.h"
_CPP_EXTENSION = "torch/utils/cpp_extension.py"
_LIBRARY = "torch/lib/libtorch_python.so"
_COMPILER = re.compile(rb"GCC: \([^)\0]{0,100}\) (\d+)\.\d+\.\d+")
# An entry of the table of host compilers: '12.8': ((6, 0, 0), (14, 0)), the second version excluded.
_BOUND = re.compile(r"'(\d+\.\d+)': \((?:MINIMUM_GCC_VERSION|\([\d, ]+\)), \((\d+), (\d+)[\d, ]*\)\)")


@dataclass(frozen=True, slots=True)
class ExtensionNeeds:
    """The measured fields of :class:`envsolve.catalogue.model.TorchExtension`."""

    cxx_standard: int
    archs: tuple[str, ...]
    gcc: int | None
    gcc_min: int | None
    gcc_below: dict[str, int]


def read_extension_needs(wheel: Artefact) -> ExtensionNeeds:
    """Read the headers and ``torch.utils.cpp_extension`` of a torch wheel for Linux.

    Raises:
        UsageError: A file is missing, or says it in a way that no version of torch up to 2.15 does.
    """
    module = read_text(wheel, _CPP_EXTENSION)
    archs = re.search(r"supported_arches = \[([^\]]*)\]", module)
    demanded = re.search(r"C\+\+(\d\d) or later compatible compiler", read_text(wheel, _ATEN))
    passed = [int(standard) for standard in re.findall(r"-std=c\+\+(\d\d)\b", module)]
    if archs is None or demanded is None or not passed:
        raise UsageError(f"{wheel.name} says nothing of how extensions are compiled that envsolve can read")
    named = re.search(r"We need GCC (\d+)", read_text(wheel, _CXX17)) if _CXX17 in wheel.files() else None
    return ExtensionNeeds(
        cxx_standard=max(int(demanded[1]), min(passed)),
        archs=tuple(sorted(re.findall(r"'([\d.]+a?)'", archs[1]), key=_arch_order)),
        gcc=_compiled_by(wheel),
        gcc_min=int(named[1]) if named else None,
        gcc_below=_gcc_below(module),
    )


def _gcc_below(module: str) -> dict[str, int]:
    """The first gcc major that is refused, by CUDA version; a bound within a major excludes the rest of it only."""
    table = module.partition("CUDA_GCC_VERSIONS")[2].partition("CUDA_CLANG_VERSIONS")[0]
    return {cuda: int(major) + (minor != "0") for cuda, major, minor in _BOUND.findall(table)}


def _compiled_by(wheel: Artefact) -> int | None:
    """Major of the newest gcc that left its name in torch's own library: older ones are those of linked-in archives."""
    if _LIBRARY not in wheel.files():
        return None
    with wheel.open(_LIBRARY) as library:
        return max((int(major) for major in _COMPILER.findall(library.read())), default=None)


def _arch_order(arch: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(number) for number in re.findall(r"\d+", arch)), arch
