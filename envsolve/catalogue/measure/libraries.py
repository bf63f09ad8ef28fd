"""Which cuDNN and NCCL a torch build was made with: pinned in its METADATA, else linked into it.

Builds up to 1.12 (NCCL: up to 1.13) carry both inside. The header that lists the settings of a build names cuDNN from
1.8 on, and NCCL has its version as text that it prints when it starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from packaging.requirements import InvalidRequirement, Requirement

from envsolve.catalogue.measure.artefact import WheelFile, read_text

_SETTINGS = "torch/include/caffe2/core/macros.h"
_CUDNN_SETTING = re.compile(r'\{"CUDNN_VERSION", "(\d+\.\d+\.\d+)"\}')
_CUDA_LIBRARY = re.compile(r"torch/lib/libtorch_cuda(_cpp|_cu)?\.so")
_NCCL_TEXT = re.compile(rb"NCCL version (\d+\.\d+\.\d+)\+cuda\d")
# Longer than the text.
_OVERLAP = 64
_ENVIRONMENTS = {
    "linux": {"platform_system": "Linux", "sys_platform": "linux", "os_name": "posix"},
    "win": {"platform_system": "Windows", "sys_platform": "win32", "os_name": "nt"},
}


def pinned(requires: Iterable[str], library: str, platform: str) -> str | None:
    """The version of a library that Requires-Dist lines pin on a platform, without what only its wheel counts.

    Args:
        requires: Requires-Dist lines.
        library: ``cudnn`` or ``nccl``; its wheels are ``nvidia-<library>-cu<major>``.
        platform: Platform part of the build's file name, ``manylinux_2_28_x86_64``.

    Returns:
        The first three parts, ``9.1.0`` for ``nvidia-cudnn-cu12==9.1.0.70``: what the library says of itself.
    """
    name = re.compile(rf"nvidia-{library}-cu\d+")
    machine = (
        platform.split("_", 1)[1] if platform.startswith("win") else re.sub(r".*?(x86_64|aarch64)$", r"\1", platform)
    )
    environment = {**_ENVIRONMENTS["win" if platform.startswith("win") else "linux"], "platform_machine": machine}
    for line in requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if not name.fullmatch(requirement.name) or (
            requirement.marker is not None and not requirement.marker.evaluate(environment)
        ):
            continue
        exact = [s.version for s in requirement.specifier if s.operator == "=="]
        if exact:
            return ".".join(exact[0].split(".")[:3])
    return None


def bundled_cudnn(wheel: WheelFile) -> str | None:
    """cuDNN's version from the header that lists the settings of the build; None where it has none.

    Raises:
        UsageError: The header is damaged.
    """
    if _SETTINGS not in wheel.files():
        return None
    found = _CUDNN_SETTING.search(read_text(wheel, _SETTINGS))
    return found[1] if found else None


def bundled_nccl(wheel: WheelFile) -> str | None:
    """NCCL's version from the text inside libtorch_cuda, which is read only as far as that.

    Raises:
        UsageError: A library is damaged.
    """
    for path in sorted(filter(_CUDA_LIBRARY.fullmatch, wheel.files()), key=wheel.compressed_size):
        if version := _nccl_text(wheel.chunks(path)):
            return version
    return None


def torch_libraries(wheel: WheelFile, requires: Sequence[str], platform: str) -> tuple[str | None, str | None]:
    """cuDNN and NCCL of a CUDA build of torch.

    Raises:
        UsageError: A file that holds the answer is damaged.
    """
    cudnn = pinned(requires, "cudnn", platform) or bundled_cudnn(wheel)
    return cudnn, pinned(requires, "nccl", platform) or bundled_nccl(wheel)


def _nccl_text(chunks: Iterable[bytes]) -> str | None:
    tail = b""
    for chunk in chunks:
        window = tail + chunk
        if found := _NCCL_TEXT.search(window):
            return found[1].decode()
        tail = window[-_OVERLAP:]
    return None
