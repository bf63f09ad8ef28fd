"""Reading an environment from its files, every source of it joined into one value.

Damage is an answer here, not an error: what cannot be read is None, what is not there is listed.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from email.parser import BytesHeaderParser
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from envsolve.binaries.files import FolderFiles
from envsolve.binaries.library import read_extension
from envsolve.binaries.measure import read_python_library, read_version
from envsolve.binaries.names import LIBRARY_FILE, is_toolkit_package
from envsolve.environment.installed import LARGEST_RECORD, record_fault, record_rows
from envsolve.environment.layout import read_layout
from envsolve.environment.loader import read_directories, read_libraries
from envsolve.environment.model import (
    BuildTools,
    CondaPackage,
    Distribution,
    Environment,
    ExtensionFiles,
    Library,
    TorchFiles,
    release,
)
from envsolve.errors import UsageError
from envsolve.facts.maintain.companions import extension_of
from envsolve.machine.model import Toolkit
from envsolve.machine.tools import HOME_VARIABLES, folders, nvcc, programs, written_version
from envsolve.system.files import from_json, is_file, open_regular, read_regular, real_path
from envsolve.values import PythonVersion

_INFO = re.compile(r"(?P<name>[^-]+)(?:-(?P<version>[^-]+))?(?:-py3[\d.]*)?\.(?:dist|egg)-info")
_PYTHON_LIBRARIES = ("torch/lib/libtorch_python.so", "torch/lib/torch_python.dll")
#: Triton compiles its kernels for the GPU at hand; what else is in its wheel is a profiler.
_NO_EXTENSIONS = frozenset({"torch", "triton", "pytorch-triton"})
_NAMED = re.compile(r'_preload_[a-z]+_\w+\(\s*"\w+",\s*"(lib[\w-]+)\.so')
_LISTED = re.compile(r'"\w+": "(lib[\w-]+)\.so')
_WHOLE_LIST = re.compile(r"(?m)^\s+_preload_[a-z]+_deps\((?:required=\w+)?\)")
_ANY_LIBRARY = re.compile(r".*\.(?:so(?:\.\d+)*|pyd)")
#: Where C extensions look for NumPy's interface: headers of NumPy 2 try the new place first, those of 1 only the old.
#: rust-numpy and pybind11, which support both, put the name of the module together from its parts.
_NUMPY_2, _NUMPY_1 = b"numpy._core", b"numpy.core._multiarray_umath"
#: A message of the same headers; those before NumPy 1.17 do not name either module.
_NUMPY_HEADERS = b"module compiled against ABI version"
_NVCC = re.compile(r"nvcc")
_COMPILER = re.compile(r"(?:[\w]+-conda-linux-gnu-)?(?:gcc|cc|clang)")


def read_environment(prefix: Path, environ: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Environment:
    """Read an environment, the code of its extensions included, which may be gigabytes.

    Nothing of the environment is imported or run, and damage in it is part of the answer.

    Args:
        prefix: Its root directory.
        environ: Variables that matter beside its files: PYTHONPATH, LD_LIBRARY_PATH, PATH, HOME, and the toolkit's.
        root: Directory to use as ``/`` for the loader's configuration.

    Raises:
        UsageError: ``prefix`` is not an environment.
    """
    outline = read_outline(prefix, environ, root=root)
    return replace(
        outline,
        extensions=tuple(read_extensions(outline.distributions, outline.libraries)),
        numpy_1=_compiled_for_numpy_1(outline),
    )


def read_outline(prefix: Path, environ: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Environment:
    """Read an environment without the code of extensions: only metadata, headers and torch's own files.

    Raises:
        UsageError: ``prefix`` is not an environment.
    """
    layout = read_layout(prefix, environ)
    folders = [Path(site.path) for site in layout.sites]
    distributions = tuple(found for folder in folders for found in read_distributions(folder))
    conda, unreadable = read_conda(layout.prefix)
    torches = (read_torch(folder, layout.prefix) for folder in folders)
    return Environment(
        prefix=str(layout.prefix),
        kind=layout.kind,
        program=layout.program,
        python=layout.python,
        arch=layout.arch,
        base=str(layout.base),
        sites=layout.sites,
        distributions=distributions,
        conda=conda,
        torches=tuple(torch for torch in torches if torch),
        libraries=tuple(read_libraries(distributions, layout.prefix)),
        loader=tuple(read_directories(environ, root)),
        tools=read_tools(layout.prefix, layout.base, layout.python, environ),
        unreadable=(*unreadable, *(text for folder in folders for text in leftovers(folder))),
    )


class _DirectUrl(msgspec.Struct, frozen=True):
    url: str


class _CondaRecord(msgspec.Struct, frozen=True):
    name: str
    version: str
    build: str = ""
    channel: str | None = None
    files: tuple[str, ...] = ()


def read_distributions(site: Path) -> Iterator[Distribution]:
    """Every distribution that has its metadata in a directory, by name of that."""
    for name in _names(site):
        if (match := _INFO.fullmatch(name)) and not name.startswith("~"):
            yield _distribution(site, name, match["name"], match["version"])


def leftovers(site: Path) -> Iterator[str]:
    """Directories that pip renamed before it was stopped: ``~orch``, ``~orch-2.8.0.dist-info``."""
    return (f"{site / name}: left by an uninstall that was stopped" for name in _names(site) if name.startswith("~"))


def read_conda(prefix: Path) -> tuple[tuple[CondaPackage, ...], tuple[str, ...]]:
    """The records of ``conda-meta``, and those that cannot be read, with the reason."""
    found, unreadable = [], []
    for path in sorted(prefix.glob("conda-meta/*.json")):
        try:
            record = from_json(read_regular(path, LARGEST_RECORD), _CondaRecord)
        except (OSError, msgspec.MsgspecError) as error:
            unreadable.append(f"{path}: {error}")
            continue
        # Python sources and documentation are most of the files, and tell nothing that metadata does not.
        deciding = [
            f for f in record.files if LIBRARY_FILE.search(f) or f.endswith((".dist-info/METADATA", "version.py"))
        ]
        missing = tuple(file for file in deciding if not os.path.lexists(prefix / file))
        found.append(
            CondaPackage(record.name, record.version, record.build, str(path), record.channel, missing=missing)
        )
    return tuple(found), tuple(unreadable)


def _distribution(site: Path, folder: str, name: str, version: str | None) -> Distribution:
    info = site / folder
    stated = _headers(info / "METADATA") or _headers(info / "PKG-INFO") or (_headers(info) if is_file(info) else {})
    rows, installer = record_rows(info), _line(info / "INSTALLER")
    files, missing, altered = _recorded(site, rows)
    return Distribution(
        name=canonicalize_name(next(iter(stated.get("name", ())), name)),
        version=next(iter(stated.get("version", ())), None) or version,
        site=str(site),
        info=str(info),
        installer=installer,
        direct_url=_direct_url(info / "direct_url.json"),
        requires=tuple(stated.get("requires-dist", ())),
        files=files,
        missing=missing,
        altered=altered,
        record_fault=record_fault(rows, installer),
    )


def _headers(path: Path) -> dict[str, list[str]]:
    """The header fields of a metadata file by lower-case name; none if it cannot be read."""
    try:
        # Parsed as bytes: metadata of old packages is not always UTF-8, and a text parser would refuse it.
        message = BytesHeaderParser().parsebytes(read_regular(path))
    except (OSError, ValueError):
        return {}
    fields: dict[str, list[str]] = {}
    for key, value in message.items():
        fields.setdefault(key.lower(), []).append(" ".join(str(value).split()))
    return fields


def _recorded(
    site: Path, rows: Sequence[Sequence[str]] | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...], tuple[str, ...]]:
    """The files that RECORD names, those of them that are missing, and libraries of another size."""
    if rows is None:
        return None, (), ()
    files, missing, altered = [], [], []
    start = f"{site}/"  # joining paths as objects takes longer than asking the system about the files
    for row in rows:
        path = row[0].replace("\\", "/")
        # Scripts and data outside the directory may be replaced by another package or by their user.
        if path.startswith(("../", "/")) or path.endswith(".pyc"):
            continue
        files.append(path)
        try:
            size = os.stat(start + path).st_size  # noqa: PTH116  thousands of files
        except OSError:
            missing.append(path)
            continue
        # Only libraries: tools rewrite Python files and scripts after installation without harm.
        if len(row) > 2 and row[2].isdecimal() and size != int(row[2]) and LIBRARY_FILE.search(path):
            altered.append(path)
    return tuple(files), tuple(missing), tuple(altered)


def _line(path: Path) -> str | None:
    try:
        return read_regular(path, 4096).decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def _direct_url(path: Path) -> str | None:
    try:
        return from_json(read_regular(path), _DirectUrl).url
    except (OSError, msgspec.MsgspecError):
        return None


def _names(folder: Path) -> Sequence[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return ()


def read_torch(site: Path, prefix: Path) -> TorchFiles | None:
    """The ``torch`` package in a directory, or None."""
    version_file = site / "torch" / "version.py"
    if not is_file(version_file) and not is_file(site / "torch" / "__init__.py"):
        return None
    version, toolkit = _version_file(version_file)
    code, abi, numpy = _python_library(site, prefix)
    local = version.partition("+")[2] or None if version else None
    return TorchFiles(str(site), version, toolkit, local, code, abi, numpy, _preloads(site / "torch" / "__init__.py"))


def _preloads(source: Path) -> tuple[str, ...]:
    """The libraries that torch loads itself: named in a call (2.6 to 2.10), or all of its list (from 2.11 on).

    Up to 2.5 the list is only used if the loader has failed.
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
    # conda-forge keeps torch's libraries in the environment's own directory of libraries.
    for path in (*(site / name for name in _PYTHON_LIBRARIES), prefix / "lib" / "libtorch_python.so"):
        try:
            with open_regular(path) as file:
                code, abi = read_python_library(file)
        except OSError:
            continue
        return code, abi, numpy_major(path)
    return None, None, None


def numpy_major(library: Path) -> int | None:
    """The major of NumPy's headers that a library was compiled with; None if it uses no NumPy, or not readable."""
    try:
        # Mapped, not read into memory: libraries of extensions reach hundreds of megabytes.
        with open_regular(library) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(_NUMPY_2) >= 0:
                return 2
            return 1 if data.find(_NUMPY_1) >= 0 or data.find(_NUMPY_HEADERS) >= 0 else None
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None


def read_extensions(distributions: Sequence[Distribution], libraries: Sequence[Library]) -> Iterator[ExtensionFiles]:
    """The code of every package built on torch or on a GPU toolkit, these themselves left out."""
    owners = {library.owner for library in libraries if library.owner and library.on_gpu}
    standing = {name for name in owners - _NO_EXTENSIONS if not is_toolkit_package(name)}
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
    stated = _version_file(site / distribution.name.replace("-", "_") / "version.py")[0]
    return ExtensionFiles(
        distribution.name,
        libraries,
        stated or distribution.version,
        read.code,
        read.every,
        read.cxx11_abi,
    )


def _compiled_for_numpy_1(environment: Environment) -> dict[str, str]:
    """The first library of each package that cannot use the NumPy 2 that is installed; nothing beside NumPy 1."""
    numpy = environment.distribution("numpy")
    if numpy is None or release(numpy.version) < (2,):
        return {}
    found: dict[str, str] = {}
    for library in environment.libraries:
        owner = library.owner
        # The vendor's libraries are gigabytes without Python; torch is read by itself.
        if owner is None or owner in {"numpy", "torch", *found} or is_toolkit_package(owner):
            continue
        if numpy_major(Path(library.path)) == 1:
            found[owner] = library.path
    return found


def read_tools(prefix: Path, base: Path, python: str | None, environ: Mapping[str, str]) -> BuildTools:
    """The toolkits, compilers and ``Python.h`` that a build would find; nothing is run."""
    home = next(filter(None, map(environ.get, HOME_VARIABLES)), None)
    search = folders(environ)
    on_path = next(programs(search, _NVCC), None)
    own = prefix / "bin"
    compilers = programs([own, *(folder for folder in search if folder != own)], _COMPILER)
    return BuildTools(
        home=home,
        home_toolkit=_toolkit(Path(home)) if home else None,
        path_toolkit=_toolkit(real_path(on_path).parent.parent) if on_path else None,
        compilers=tuple(map(str, compilers)),
        python_h=_python_h(prefix, base, python),
    )


def _toolkit(folder: Path) -> Toolkit | None:
    program = nvcc(folder)
    version = written_version(folder)
    if program is None and version is None:
        return None
    return Toolkit(version, str(folder), program is not None)


def _python_h(prefix: Path, base: Path, python: str | None) -> str | None:
    minor = str(PythonVersion.parse(python)) if python else "3"
    places = (f"include/python{minor}/Python.h", f"include/python{minor}t/Python.h", "include/Python.h")
    found = (root / place for root in (base, prefix) for place in places)
    return next((str(path) for path in found if is_file(path)), None)
