"""What compiling an extension against torch asks of compilers."""

from collections.abc import Mapping

import msgspec

from envsolve.catalogue.model.evidence import Citation, Dispute, Evidence


class TorchExtension(msgspec.Struct, frozen=True):
    """What one torch version asks of whoever compiles against it: its headers and ``torch.utils.cpp_extension``.

    Attributes:
        version: Public version of torch.
        cxx_standard: The newer of the C++ standard that its headers demand and that it passes to the compiler, ``17``.
        archs: Entries that ``TORCH_CUDA_ARCH_LIST`` may hold, ``9.0a``; others are an error.
        gcc: Major of the gcc that compiled the wheel itself.
        gcc_min: Oldest gcc major that the headers accept by name; None where they name none.
        gcc_below: By CUDA version, the gcc major from which on ``torch.utils.cpp_extension`` refuses to compile.
    """

    version: str
    cxx_standard: int
    archs: tuple[str, ...]
    evidence: Evidence
    source: str
    gcc: int | None = None
    gcc_min: int | None = None
    gcc_below: Mapping[str, int] = {}
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


class ExtensionModule(msgspec.Struct, frozen=True):
    """Which package a compiled module is of. Of several whose names a text has, the first record counts.

    Attributes:
        name: What its modules and libraries have in their names, in lower case: ``selective_scan``.
        package: ``mamba-ssm``.
    """

    name: str
    package: str
    evidence: Evidence
    source: str
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()


class CxxStandard(msgspec.Struct, frozen=True):
    """The oldest compilers that implement a C++ standard under its final name and ``__cplusplus`` value.

    Attributes:
        standard: ``17``.
        gcc_min: gcc's major; ``clang_min`` likewise; ``msvc_min`` is ``_MSC_VER``.
    """

    standard: int
    gcc_min: int
    clang_min: int
    evidence: Evidence
    source: str
    msvc_min: int | None = None
    cited: Mapping[str, Citation] = {}
    disputed: tuple[Dispute, ...] = ()
