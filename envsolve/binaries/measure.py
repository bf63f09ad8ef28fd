"""Measuring artefacts: the CUDA code, tools and dependencies in a published or installed file.

Nothing here imports what it measures or needs a GPU. Of a wheel only the metadata and the files that hold the answer
are read, through any seekable file, so that one on a server costs few requests.
"""

from __future__ import annotations

import ast
import csv
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envsolve.binaries import tools
from envsolve.binaries.files import Artefact, FolderFiles, WheelFile, read_text
from envsolve.binaries.library import read_library
from envsolve.binaries.model import Assembler, Library, Measurement
from envsolve.binaries.names import LIBRARY_FILE
from envsolve.errors import UsageError
from envsolve.system.files import open_regular, read_regular, real_path, without_warnings

# What a PyTorch build says of itself, read without importing it.
#
# ``torch/version.py`` names the CUDA version. The flags that ``torch.cuda.get_arch_list()`` returns are one literal in
# ``libtorch_python``, about a fiftieth of the wheel; the kernels themselves (:func:`fatbin.scan` over
# ``libtorch_cuda.so``) would be most of it.


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
        UsageError: The text is not a Python version.
    """
    try:
        with without_warnings():
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
    """Arch flags in their own order (empty for a CPU build), and the C++11 ABI (None if no symbol shows it).

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


_TOOL = re.compile(
    r"(.*/)?bin/(nvcc|ptxas(-\w+)?|cuobjdump|nvdisasm|fatbinary|cicc|nvlink|nvprune|cudafe\+\+|bin2c)(\.exe)?"
)
# Such files have some hundred bytes.
_LARGEST_RECORD = 64 * 2**20
_LARGEST_VERSION = 1 << 16
# The largest wheels hold 4 GiB; what is far larger takes minutes to read, and is not one.
_LARGEST = 32 << 30
_METADATA = re.compile(r"[^/]+\.dist-info/(METADATA|WHEEL)")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Fields from METADATA and WHEEL."""

    package: str | None = None
    version: str | None = None
    requires_python: str | None = None
    requires: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def measure_path(path: Path, *, every: bool = False) -> Measurement:
    """Measure what is at a local path: a wheel, a shared library, a ``ptxas``, an environment or ``site-packages``.

    Args:
        path: Where.
        every: As for :func:`measure_package`.

    Raises:
        UsageError: There is nothing there, or nothing that can be measured.
    """
    try:
        kind = path.stat()
        if stat.S_ISDIR(kind.st_mode):
            return measure_environment(path, every=every)
        if not stat.S_ISREG(kind.st_mode):
            raise UsageError(f"{path} is a pipe or a device, not a file")
        if kind.st_size > _LARGEST:
            raise UsageError(f"{path} is larger than {_LARGEST >> 30} GiB: that is neither a wheel nor a library")
        with open_regular(path) as file:
            return measure(file, path.name, every=every)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def measure(file: IO[bytes], name: str, *, every: bool = False) -> Measurement:
    """Measure one file: a wheel, a ``ptxas`` or a shared library, distinguished by name.

    Args:
        file: Seekable.
        name: File name.
        every: As for :func:`measure_package`.

    Raises:
        UsageError: Damaged, or none of these.
    """
    if name.endswith(".whl"):
        return measure_package(WheelFile(file, name), "wheel", every=every)
    if tools.is_ptxas(name):
        return Measurement(kind="program", name=name, assemblers=(tools.read_ptxas(file, name),))
    library = read_library(file, name)
    if library.machine is None and not (library.sass or library.ptx):
        raise UsageError(
            f"{name} is not a wheel, shared library, fat binary or ptxas",
            hint="envsolve measures .whl, .so, .dll and .fatbin files, ptxas programs and environments",
        )
    return Measurement(kind="library", name=name, libraries=(library,))


def measure_package(artefact: Artefact, kind: Literal["wheel", "distribution"], *, every: bool = False) -> Measurement:
    """Read a package as cheaply as it allows.

    For torch that is ``version.py`` and one literal in ``libtorch_python``; its kernels are
    :func:`measure_libraries`'s. For a package that bundles assemblers (triton, nvcc) it is those. For every
    other it is the headers of all fat binaries.

    Args:
        artefact: The package.
        kind: What it is.
        every: Read the libraries of any package: of torch that is most of it.

    Raises:
        UsageError: It has no METADATA, or a file that holds the answer is damaged.
    """
    meta = read_metadata(artefact)
    files = artefact.files()
    assemblers = _assemblers(artefact, files)
    version, cuda, flags, abi = meta.version, None, None, None
    libraries: tuple[Library, ...] = ()
    if VERSION_FILE in files:
        own_version, cuda = read_version(read_text(artefact, VERSION_FILE, _LARGEST_VERSION))
        version = own_version or version
        for path in filter(PYTHON_LIBRARY.fullmatch, files):
            with artefact.open(path) as file:
                flags, abi = read_python_library(file)
    if every or not (assemblers or flags is not None):
        libraries = measure_libraries(artefact)
    return Measurement(
        kind=kind,
        name=artefact.name,
        package=meta.package,
        version=version,
        tags=meta.tags,
        requires_python=meta.requires_python,
        requires=meta.requires,
        cuda=cuda,
        arch_flags=flags,
        cxx11_abi=abi,
        libraries=libraries,
        assemblers=assemblers,
        tools=tuple(filter(_TOOL.fullmatch, files)),
    )


def measure_libraries(artefact: Artefact) -> tuple[Library, ...]:
    """Every library that carries CUDA code or needs an NVIDIA library; reads all of them, gigabytes for torch.

    Raises:
        UsageError: A library is damaged.
    """
    found = []
    for path in artefact.files():
        if LIBRARY_FILE.search(path):
            with artefact.open(path) as file:
                library = read_library(file, path)
            if library.sass or library.ptx or library.needed:
                found.append(library)
    return tuple(found)


def read_metadata(artefact: Artefact) -> Metadata:
    """METADATA and WHEEL of the package.

    Raises:
        UsageError: The wheel has no METADATA.
    """
    paths = {path.rsplit("/", 1)[-1]: path for path in artefact.files() if _METADATA.fullmatch(path)}
    if "METADATA" not in paths:
        raise UsageError(f"{artefact.name} has no .dist-info/METADATA", hint="envsolve measures wheels, not sdists")
    raw, _ = parse_email(read_text(artefact, paths["METADATA"]))
    tags: Sequence[str] = ()
    if "WHEEL" in paths:
        tags = re.findall(r"(?m)^Tag:\s*(\S+)", read_text(artefact, paths["WHEEL"]))
    name = raw.get("name")
    return Metadata(
        canonicalize_name(name) if name else None,
        raw.get("version"),
        raw.get("requires_python"),
        tuple(raw.get("requires_dist", ())),
        tuple(tags),
    )


def _assemblers(artefact: Artefact, files: Sequence[str]) -> tuple[Assembler, ...]:
    found = []
    for path in filter(tools.is_ptxas, files):
        with artefact.open(path) as file:
            found.append(tools.read_ptxas(file, path))
    return tuple(found)


# Measuring what is installed: the distributions of a ``site-packages`` directory, without importing any.


_SITE_PACKAGES = ("lib/python3*/site-packages", "lib64/python3*/site-packages", "Lib/site-packages")


def measure_environment(folder: Path, *, every: bool = False) -> Measurement:
    """Every installed distribution that carries CUDA code, needs NVIDIA libraries, or is torch itself.

    Args:
        directory: A ``site-packages`` directory, or the prefix (environment) that holds one.
        every: As for :func:`measure_package`.

    Raises:
        UsageError: No distribution is installed there.
    """
    sites = [folder, *(path for pattern in _SITE_PACKAGES for path in sorted(folder.glob(pattern)))]
    infos = {real_path(path): path.parent for site in sites for path in sorted(site.glob("*.dist-info/METADATA"))}
    if not infos:
        raise UsageError(
            f"nothing is installed in {folder}", hint="name a site-packages directory, or an environment that has one"
        )
    parts = (_distribution(info, every) for info in infos.values())
    carrying = tuple(part for part in parts if part.carries_cuda)
    return Measurement(kind="environment", name=folder.name, parts=carrying)


def _distribution(info: Path, every: bool) -> Measurement:
    site = info.parent
    try:
        text = read_regular(info / "RECORD", _LARGEST_RECORD).decode("utf-8")
        if "\0" in text:  # the csv module of Python 3.10 refuses it, later ones do not
            raise ValueError("a null character")
        paths = [row[0] for row in csv.reader(text.splitlines()) if row]
    except (OSError, ValueError, csv.Error):
        paths = [path.relative_to(site).as_posix() for path in info.iterdir()]
    return measure_package(FolderFiles(site, info.name.removesuffix(".dist-info"), paths), "distribution", every=every)


# Which cuDNN and NCCL a torch build was made with: pinned in its METADATA, else linked into it.
#
# Builds up to 1.12 (NCCL: up to 1.13) carry both inside. The header that lists the settings of a build names cuDNN
# from 1.8 on, and NCCL has its version as text that it prints when it starts.


_SETTINGS = "torch/include/caffe2/core/macros.h"
_CUDNN_SETTING = re.compile(r'\{"CUDNN_VERSION", "(\d+\.\d+\.\d+)"\}')
_CUDA_LIBRARY = re.compile(r"torch/lib/libtorch_cuda(_cpp|_cu)?\.so")
_NCCL_TEXT = re.compile(rb"NCCL version (\d+\.\d+\.\d+)\+cuda\d")
# Longer than the text.
_LIBRARIES_OVERLAP = 64
_ENVIRONMENTS = {
    "linux": {"platform_system": "Linux", "sys_platform": "linux", "os_name": "posix"},
    "win": {"platform_system": "Windows", "sys_platform": "win32", "os_name": "nt"},
}


def pinned(requires: Iterable[str], library: str, platform: str) -> str | None:
    """The version of a library that Requires-Dist lines pin on a platform, without the build number of its wheel.

    Args:
        requires: Requires-Dist lines.
        library: ``cudnn`` or ``nccl``; its wheels are ``nvidia-<library>-cu<major>``.
        platform: Platform part of the build's file name, ``manylinux_2_28_x86_64``.

    Returns:
        The first three parts, ``9.1.0`` for ``nvidia-cudnn-cu12==9.1.0.70``: the version that the library prints.
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
    """cuDNN's version from the header that lists the settings of the build; None if it has none.

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
        tail = window[-_LIBRARIES_OVERLAP:]
    return None
