"""What the binaries of an environment carry and need: torch's own files, every library's headers, extensions' code."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envsolve.binaries import elf
from envsolve.binaries.files import FolderFiles
from envsolve.binaries.library import read_extension
from envsolve.binaries.measure import read_python_library, read_version
from envsolve.environment.distributions import LIBRARY
from envsolve.environment.model import Distribution, Environment, ExtensionFiles, SharedLibrary, TorchFiles
from envsolve.errors import UsageError
from envsolve.facts.maintain.companions import extension_of
from envsolve.system.files import is_file, is_folder, read_regular, real_path

_OF_CUDA = re.compile(r"lib(?:torch|c10|cuda|cu(?:blas|dnn|fft|rand|solver|sparse|pti|file|dss|tensor)|nv|nccl)")
_PYTHON_LIBRARIES = ("torch/lib/libtorch_python.so", "torch/lib/torch_python.dll")
#: Triton compiles its kernels for the card at hand; what else is in its wheel is a profiler.
_NO_EXTENSIONS = frozenset({"torch", "triton", "pytorch-triton"})
_NAMED = re.compile(r'_preload_cuda_\w+\(\s*"\w+",\s*"(lib[\w-]+)\.so')
_LISTED = re.compile(r'"\w+": "(lib[\w-]+)\.so')
_WHOLE_LIST = re.compile(r"(?m)^\s+_preload_cuda_deps\((?:required=\w+)?\)")
_ANY_LIBRARY = re.compile(r".*\.(?:so(?:\.\d+)*|pyd)")
#: Where C extensions look for NumPy's interface: headers of NumPy 2 try the new place first, those of 1 only the old.
_NUMPY_2, _NUMPY_1 = b"numpy._core._multiarray_umath", b"numpy.core._multiarray_umath"


def read_torch(site: Path, prefix: Path) -> TorchFiles | None:
    """The ``torch`` package in a folder; None where there is none."""
    version_file = site / "torch" / "version.py"
    if not is_file(version_file) and not is_file(site / "torch" / "__init__.py"):
        return None
    version, cuda = _version_file(version_file)
    code, abi, numpy = _python_library(site, prefix)
    local = version.partition("+")[2] or None if version else None
    return TorchFiles(str(site), version, cuda, local, code, abi, numpy, _preloads(site / "torch" / "__init__.py"))


def _preloads(source: Path) -> tuple[str, ...]:
    """The libraries that torch loads itself: named in a call (2.6 to 2.10), or all of its list (from 2.11 on).

    Up to 2.5 the list serves only where the loader has failed.
    """
    try:
        text = read_regular(source).decode("utf-8", "replace")
    except OSError:
        return ()
    named = _NAMED.findall(text)
    return tuple(dict.fromkeys([*named, *_LISTED.findall(text)] if _WHOLE_LIST.search(text) else named))


def _version_file(path: Path) -> tuple[str | None, str | None]:
    try:
        return read_version(read_regular(path).decode("utf-8", "replace"))
    except (OSError, UsageError):
        return None, None


def _python_library(site: Path, prefix: Path) -> tuple[tuple[str, ...] | None, bool | None, int | None]:
    # conda-forge keeps torch's libraries in the environment's own folder of libraries.
    for path in (*(site / name for name in _PYTHON_LIBRARIES), prefix / "lib" / "libtorch_python.so"):
        try:
            with path.open("rb") as file:
                code, abi = read_python_library(file)
        except OSError:
            continue
        return code, abi, numpy_major(path)
    return None, None, None


def numpy_major(library: Path) -> int | None:
    """The major of NumPy's headers that a library was compiled with; None where it uses no NumPy, or not readable."""
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(_NUMPY_2) >= 0:
                return 2
            return 1 if data.find(_NUMPY_1) >= 0 else None
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None


def read_libraries(distributions: Sequence[Distribution], prefix: Path) -> Iterator[SharedLibrary]:
    """Headers of torch's, NVIDIA's and all libraries that need these."""
    for path, owner in _library_files(distributions, prefix):
        if found := _read_library(path, owner):
            yield found


def _read_library(path: Path, owner: str | None) -> SharedLibrary | None:
    own = owner == "torch" or bool(_OF_CUDA.match(path.name))
    if not is_file(path):  # a pipe would be waited for
        return None
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size and file.read(len(elf.MAGIC)) != elf.MAGIC:
                return None  # a DLL, or a script for the linker
            header = elf.read_elf(file, path.name)
    except OSError:
        return None
    except UsageError:
        return SharedLibrary(str(path), owner, path.name, cut_off=True) if own else None
    if not own and not any(map(_OF_CUDA.match, header.needed)):
        return None
    origin = str(path.parent)
    rpath, runpath = _folders(header.rpath, origin), _folders(header.runpath, origin)
    wanted = [name for name in header.needed if _OF_CUDA.match(name)]
    return SharedLibrary(
        path=str(path),
        owner=owner,
        soname=header.soname or path.name,
        needed=header.needed,
        rpath=rpath,
        runpath=runpath,
        reached=tuple(n for n in wanted if any(is_file(Path(folder) / n) for folder in (*rpath, *runpath))),
        real=str(real_path(path)),
        cut_off=header.end > size,
    )


def _library_files(distributions: Sequence[Distribution], prefix: Path) -> Iterator[tuple[Path, str | None]]:
    for distribution in distributions:
        for file in distribution.files or ():
            if LIBRARY.search(file):
                yield Path(distribution.site) / file, distribution.name
    if is_folder(prefix / "conda-meta"):
        yield from ((path, None) for path in sorted((prefix / "lib").glob("lib*.so*")) if _OF_CUDA.match(path.name))


def _folders(entries: Sequence[str], origin: str) -> tuple[str, ...]:
    return tuple(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for entry in entries)


def read_extensions(
    distributions: Sequence[Distribution], libraries: Sequence[SharedLibrary]
) -> Iterator[ExtensionFiles]:
    """The code of every package that stands on torch or CUDA, these themselves left out."""
    owners = {library.owner for library in libraries if library.owner}
    standing = {name for name in owners - _NO_EXTENSIONS if not name.startswith("nvidia-")}
    seen: set[str] = set()
    for distribution in distributions:
        if distribution.name in standing and distribution.name not in seen:
            seen.add(distribution.name)
            if extension := _extension(distribution):
                yield extension


def _extension(distribution: Distribution) -> ExtensionFiles | None:
    site = Path(distribution.site)
    files = FolderFiles(site, distribution.label, distribution.files)
    try:
        read = extension_of(distribution.name, files) or read_extension(files, _ANY_LIBRARY)
    except (UsageError, OSError):
        return None
    if read is None:
        return None
    libraries = tuple(file for file in files.files() if _ANY_LIBRARY.fullmatch(file))
    majors = {major for file in libraries if (major := numpy_major(site / file))}
    stated = _version_file(site / distribution.name.replace("-", "_") / "version.py")[0]
    return ExtensionFiles(
        distribution.name,
        libraries,
        stated or distribution.version,
        read.code,
        read.every,
        read.cxx11_abi,
        min(majors, default=None),
    )


# Where the loader finds a library that another needs, by the rules of ``ld.so(8)``.
#
# For each name: the RPATH of who needs it (only where it has no RUNPATH), LD_LIBRARY_PATH, its RUNPATH, the loader's
# configuration. A name that is loaded already is not searched again, so what torch loads itself, and what its own
# libraries find by their RPATH, serves everyone after them.


_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
CUDA_LIBRARY = re.compile(
    r"lib(?:cu(?:blas|dnn|fft|rand|solver|sparse|pti|file|dss|tensor|dart)|nv|nccl)[\w-]*\.so\.\d+"
)


@dataclass(frozen=True, slots=True)
class Shadow:
    """A library outside the environment that is loaded in place of the environment's own.

    Attributes:
        name: As it is needed, ``libnvJitLink.so.12``.
        needed_by: Who needs it.
        outside: The file that the loader takes.
        folder: The folder of LD_LIBRARY_PATH that it is found in.
        own: The environment's own file.
        owner: The distribution of that.
    """

    name: str
    needed_by: SharedLibrary
    outside: str
    folder: str
    own: str
    owner: str | None

    @property
    def outside_version(self) -> str | None:
        """The version in the name of the file outside."""
        match = _VERSION.search(self.outside)
        return match[1] if match else None


def shadows(environment: Environment) -> Iterator[Shadow]:
    """Libraries that LD_LIBRARY_PATH puts before the environment's own."""
    first = [folder for folder in environment.loader if folder.origin == "LD_LIBRARY_PATH"]
    if not first:
        return
    own = {library.soname: library for library in reversed(environment.libraries)}
    preloaded = environment.torch.preloads if environment.torch else ()
    loaded = set(_found_by_rpath(environment)) | {n for n in own if n.partition(".so")[0] in preloaded}
    told: set[str] = set()
    for library in environment.libraries:
        if library.rpath and not library.runpath:
            continue
        for name in library.needed:
            outside = next(((f, f.libraries[name]) for f in first if name in f.libraries), None)
            if outside is None or name in loaded or name in told or name not in own:
                continue
            folder, file = outside
            if own[name].real != file:
                told.add(name)
                yield Shadow(name, library, file, folder.path, own[name].path, own[name].owner)


def _found_by_rpath(environment: Environment) -> Iterator[str]:
    for library in environment.libraries:
        if library.owner == "torch" and library.rpath and not library.runpath:
            yield from library.reached


def unresolved(environment: Environment) -> dict[str, SharedLibrary]:
    """CUDA libraries that torch's own need and that neither the loader nor torch finds, with who needs them.

    Where the loader fails, ``torch/__init__.py`` looks for NVIDIA's wheels in every folder of the interpreter's path.
    """
    outside = {name for folder in environment.loader for name in folder.libraries}
    owners = ("torch", "nvidia-")
    own = {lib.soname for lib in environment.libraries if lib.owner is None or lib.owner.startswith(owners)}
    found: dict[str, SharedLibrary] = {}
    for library in environment.libraries:
        if library.owner != "torch":
            continue
        for name in library.needed:
            if CUDA_LIBRARY.fullmatch(name) and name not in outside and name not in own and name not in library.reached:
                found.setdefault(name, library)
    return found
