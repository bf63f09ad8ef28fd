"""What a PyTorch build says of itself, read without importing it.

``torch/version.py`` names the CUDA version. The flags that ``torch.cuda.get_arch_list()`` returns are one literal in
``libtorch_python``, about a fiftieth of the wheel; the kernels themselves (:func:`fatbin.scan` over
``libtorch_cuda.so``) would be most of it.
"""

from __future__ import annotations

import ast
import re
from typing import IO

from envsolve.errors import UsageError

VERSION_FILE = "torch/version.py"
PYTHON_LIBRARY = re.compile(r"torch/lib/(libtorch_python\.so|torch_python\.dll)")

_CHUNK = 1 << 20
# The longest literal seen is under 150 bytes, a mangled name under 100.
_OVERLAP = 1 << 10
_FLAGS = re.compile(rb"(?:(?:sm|compute)_\d{2,3}[af]? ){0,40}(?:sm|compute)_\d{2,3}[af]?(?=\0)")
# Every build calls c10's torchCheckFail(const char*, const char*, uint32_t, const std::string&), before 1.8 the
# constructor c10::Error(SourceLocation, std::string); the mangled name shows which std::string that is.
_CHECK_FAIL = re.compile(rb"(?:torchCheckFailEPKcS2_jRK|3c105ErrorC[12]ENS_14SourceLocationE)(Ss|NSt7__cxx11)")


def read_version(source: str) -> tuple[str | None, str | None]:
    """Version with local part, and CUDA version (None for a build without CUDA), from the text of ``version.py``.

    Raises:
        UsageError: The text is no Python.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{VERSION_FILE} cannot be read: {error}") from error
    values: dict[str, str] = {}
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                values[target.id] = value.value
    return values.get("__version__"), values.get("cuda")


def read_python_library(file: IO[bytes]) -> tuple[tuple[str, ...], bool | None]:
    """Arch flags in their own order (empty for a CPU build), and the C++11 ABI (None where no symbol tells).

    Args:
        file: ``libtorch_python.so``, from its start; read once, in bounded memory.
    """
    flags = b""
    abis: set[bytes] = set()
    tail = b""
    while chunk := file.read(_CHUNK):
        window = tail + chunk
        # Looking for plain text first is fifty times faster than a pattern that begins with a choice.
        if b"sm_" in window or b"compute_" in window:
            flags = max([flags, *_FLAGS.findall(window)], key=len)
        if b"torchCheckFail" in window or b"ErrorC" in window:
            abis.update(_CHECK_FAIL.findall(window))
        tail = window[-_OVERLAP:]
    abi = abis == {b"NSt7__cxx11"} if len(abis) == 1 else None
    return tuple(flags.decode().split()), abi
