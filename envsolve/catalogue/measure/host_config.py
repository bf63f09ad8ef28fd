"""The host compilers that an nvcc accepts, read from the checks in its ``crt/host_config.h``."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GCC = re.compile(r"^#if __GNUC__ > (\d+)", re.MULTILINE)
_CLANG = re.compile(r"^#if \(__clang_major__ >= (\d+)\)", re.MULTILINE)
_MSVC = re.compile(r"^#if _MSC_VER < \d+ \|\| _MSC_VER >= (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HostCompilerLimits:
    """Newest gcc major accepted, first clang major refused, first ``_MSC_VER`` refused; None where not checked."""

    gcc_max: int | None
    clang_below: int | None
    msvc_below: int | None


def read_limits(header: str) -> HostCompilerLimits:
    """Read the text of ``host_config.h``; its checks for special clang builds come before the general one."""
    return HostCompilerLimits(
        *(int(found[-1]) if (found := p.findall(header)) else None for p in (_GCC, _CLANG, _MSVC))
    )
