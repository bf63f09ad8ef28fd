"""Measure a ``ptxas`` program: its CUDA release, the GPUs it knows, the newest PTX it reads.

The program is run (``--version``, ``--help``, and a PTX from the future that it must refuse, naming its own version).
If this host cannot run it, its strings give all but the PTX version.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from envsolve.binaries.files import Artefact, read_text
from envsolve.binaries.model import Assembler, arch_order
from envsolve.errors import UsageError
from envsolve.system.processes import capture
from envsolve.values import ComputeCapability

_LARGEST = 256 << 20
_TIMEOUT_S = 20
_RELEASE = re.compile(rb"Cuda compilation tools, release (\d+\.\d+), V(\d+\.\d+\.\d+)")
_ACCEPTED = re.compile(rb"'(sm_\d{2,3}[af]?)'")
_OWN_ISA = re.compile(rb"current version is '(\d+\.\d+)'")
# Strings hold the names of long dropped sm_ targets too; the compute_ names are exactly those that --help lists.
_COMPUTE = re.compile(rb"(?<=\0)compute_(\d{2,3}[af]?)(?=\0)")


def is_ptxas(name: str) -> bool:
    """Whether a path names a ptxas program: ``bin/ptxas``, ``bin/ptxas-blackwell``, ``ptxas.exe``."""
    return re.fullmatch(r"ptxas(-[a-z]+)?(\.exe)?", name.rsplit("/", 1)[-1]) is not None


def read_ptxas(file: IO[bytes], name: str) -> Assembler:
    """Ask the program where this host can run it, otherwise read its strings.

    Args:
        file: The program, from its start.
        name: Path inside the artefact.

    Raises:
        UsageError: Not a ptxas.
    """
    data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST or not (found := _RELEASE.search(data)):
        raise UsageError(f"{name} is not a ptxas program: it names no CUDA release")
    release = [group.decode() for group in found.groups()]
    archs = _sorted(b"sm_" + digits for digits in _COMPUTE.findall(data))
    with tempfile.TemporaryDirectory(prefix="envsolve-") as folder:
        program = Path(folder, "ptxas")
        program.write_bytes(data)
        program.chmod(0o700)
        if not (answer := _RELEASE.search(_run([str(program), "--version"]))):
            return Assembler(name, release[0], release[1], None, archs, ran=False)
        release = [group.decode() for group in answer.groups()]
        archs = _sorted(_ACCEPTED.findall(_run([str(program), "--help"]))) or archs
        return Assembler(name, release[0], release[1], _newest_isa(program, archs), archs, ran=True)


def _newest_isa(program: Path, archs: Sequence[str]) -> str | None:
    """The newest PTX version, from the refusal of one that does not exist."""
    if not archs:
        return None
    source = program.with_name("future.ptx")
    source.write_text(f".version 99.9\n.target {archs[0]}\n")
    found = _OWN_ISA.search(_run([str(program), "-arch", archs[0], str(source), "-o", str(source.with_suffix(".o"))]))
    return found[1].decode() if found else None


def _run(command: Sequence[str]) -> bytes:
    """Return the output of the command, or nothing if it cannot run; an old ptxas crashes after it refuses."""
    try:
        ended = capture(command, {}, limit=_TIMEOUT_S)
    except OSError:
        return b""
    return ended.stdout + ended.stderr.encode()


def _sorted(names: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(sorted({n.decode() for n in names}, key=arch_order))


# The host compilers that an nvcc accepts, read from the checks in its ``crt/host_config.h``.


_GCC = re.compile(r"^#if __GNUC__ > (\d+)", re.MULTILINE)
_CLANG = re.compile(r"^#if \(__clang_major__ >= (\d+)\)", re.MULTILINE)
_MSVC = re.compile(r"^#if _MSC_VER < \d+ \|\| _MSC_VER >= (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HostCompilerLimits:
    """Newest gcc major accepted, first clang major refused, first ``_MSC_VER`` refused; None if not checked."""

    gcc_max: int | None
    clang_below: int | None
    msvc_below: int | None


def read_limits(header: str) -> HostCompilerLimits:
    """Read the text of ``host_config.h``; its checks for special clang builds come before the general one."""
    return HostCompilerLimits(
        *(int(found[-1]) if (found := p.findall(header)) else None for p in (_GCC, _CLANG, _MSVC))
    )


# What a torch wheel asks of whoever compiles an extension against it.


_ATEN = "torch/include/ATen/ATen.h"
_CXX17 = "torch/include/c10/util/C++17.h"
_CPP_EXTENSION = "torch/utils/cpp_extension.py"
_LIBRARY = "torch/lib/libtorch_python.so"
_COMPILER = re.compile(rb"GCC: \([^)\0]{0,100}\) (\d+)\.\d+\.\d+")
# An entry of the table of host compilers: '12.8': ((6, 0, 0), (14, 0)), the second version excluded.
_BOUND = re.compile(r"'(\d+\.\d+)': \((?:MINIMUM_GCC_VERSION|\([\d, ]+\)), \((\d+), (\d+)[\d, ]*\)\)")


@dataclass(frozen=True, slots=True)
class ExtensionNeeds:
    """The measured fields of :class:`envsolve.facts.builds.TorchExtension`."""

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
        raise UsageError(f"{wheel.name} does not say how extensions are compiled in a form that envsolve can read")
    named = re.search(r"We need GCC (\d+)", read_text(wheel, _CXX17)) if _CXX17 in wheel.files() else None
    return ExtensionNeeds(
        cxx_standard=max(int(demanded[1]), min(passed)),
        archs=tuple(sorted(re.findall(r"'([\d.]+a?)'", archs[1]), key=_arch_order)),
        gcc=_compiled_by(wheel),
        gcc_min=int(named[1]) if named else None,
        gcc_below=_gcc_below(module),
    )


def _gcc_below(module: str) -> dict[str, int]:
    """The first gcc major that is refused, by CUDA version; a limit within a major excludes only its rest."""
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


# How a Triton release chooses its assembler and what its launcher needs, read from the sources in its wheel.
#
# Only the shapes that published releases have are understood; a new one is refused rather than guessed at.


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
        second_from: Compute capability from which ``ptxas-blackwell`` is used; None if there is only ``ptxas``.
        second_override: Environment variable that replaces ``ptxas-blackwell``.
        arch_specific_from: Lowest compute capability for which it asks for arch-specific code (``sm_90a``); None if
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
    """Requirements of the launcher on the host at run time.

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
