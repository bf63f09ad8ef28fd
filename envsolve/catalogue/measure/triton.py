"""How a Triton release chooses its assembler and what its launcher needs, read from the sources in its wheel.

Only the shapes that published releases have are understood; a new one is refused rather than guessed at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from envsolve.catalogue.measure.artefact import Artefact, read_text
from envsolve.errors import UsageError
from envsolve.machine.cc import ComputeCapability

_COMPILERS = (
    "triton/backends/nvidia/compiler.py",
    "triton/common/backend.py",
    "triton/compiler.py",
)
_KNOBS = "triton/knobs.py"
# Where a launcher is compiled and what it is linked with: two files, or one in old releases.
_LAUNCHERS = (
    "triton/backends/nvidia/driver.py",
    "triton/runtime/build.py",
    "triton/common/build.py",
    "triton/compiler.py",
)
HostNeed = Literal["c-compiler", "python-headers", "libcuda-link"]
_NEEDS: dict[HostNeed, re.Pattern[str]] = {
    "c-compiler": re.compile(r"Failed to find C compiler"),
    "python-headers": re.compile(r"\bpy_include_dir\b"),
    # "libraries = ['libcuda.so.1']", as later releases have it, links the driver's own file.
    "libcuda-link": re.compile(r"['\"]-lcuda['\"]|^libraries = \[['\"]cuda['\"]\]$", re.MULTILINE),
}
_THRESHOLDS = (
    re.compile(r"ptxas[_-]blackwell\W+if arch >= (\d+)"),
    re.compile(r"if arch < (\d+):\s*return knobs\.nvidia\.ptxas\n"),
)
_SUFFIX = re.compile(r"\ba ?['\"] if capability [>=]= (\d+)|sm_(\d+)a['\"] if capability ==")


@dataclass(frozen=True, slots=True)
class AssemblerChoice:
    """The rule of one release.

    Attributes:
        second_from: Compute capability from which ``ptxas-blackwell`` is used; None where there is only ``ptxas``.
        second_override: Environment variable that replaces ``ptxas-blackwell``.
        arch_specific_from: Lowest compute capability for which it asks for arch-specific code (``sm_90a``); None where
            the sources do not show it (before 3.0 it was compiled in).
    """

    second_from: str | None
    second_override: str | None
    arch_specific_from: str | None


def read_choice(artefact: Artefact, second: bool) -> AssemblerChoice:
    """Read the rule.

    Args:
        artefact: A Triton wheel or installation.
        second: Whether it bundles ``ptxas-blackwell``.

    Raises:
        UsageError: The sources are missing or choose in a way that is not known.
    """
    files = set(artefact.files())
    path = next((p for p in _COMPILERS if p in files), None)
    if path is None:
        raise UsageError(f"{artefact.name} has none of {', '.join(_COMPILERS)}")
    source = read_text(artefact, path)
    if "TRITON_" not in source + (tools := read_text(artefact, _KNOBS) if _KNOBS in files else ""):
        raise UsageError(f"{artefact.name}: {path} names no TRITON_ variable for its ptxas")
    suffix = _SUFFIX.search(source)
    specific = _cc(suffix[1] or suffix[2]) if suffix else None
    if not second:
        return AssemblerChoice(None, None, specific)
    threshold = next((m[1] for pattern in _THRESHOLDS if (m := pattern.search(source))), None)
    if threshold is None:
        raise UsageError(f"{artefact.name}: {path} chooses between its ptxas programs in an unknown way")
    # 3.3 upper-cases the program's name, hyphen and all; knobs.py of later releases replaces it.
    override = "TRITON_PTXAS_BLACKWELL_PATH" if "replace('-', '_')" in tools else "TRITON_PTXAS-BLACKWELL_PATH"
    return AssemblerChoice(_cc(threshold), override, specific)


def read_host_needs(artefact: Artefact) -> tuple[HostNeed, ...]:
    """What the launcher needs of the host at run time.

    Args:
        artefact: A Triton wheel or installation.

    Raises:
        UsageError: The sources are missing or compile no launcher.
    """
    files = set(artefact.files())
    source = "\n".join(read_text(artefact, path) for path in _LAUNCHERS if path in files)
    if not _NEEDS["c-compiler"].search(source):
        raise UsageError(f"{artefact.name} compiles its launcher in an unknown way")
    return tuple(need for need, sign in _NEEDS.items() if sign.search(source))


def _cc(digits: str) -> str:
    return str(ComputeCapability.parse(digits))
