"""CUDA toolkits on disk."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envsolve.machine.model import HostCompiler, Installer, Interpreter, Toolkit
from envsolve.system.files import is_file, open_regular, read_regular, real_path
from envsolve.system.processes import TIME_LIMIT, ask
from envsolve.values import PythonVersion


def _ask_own(command: Sequence[str], environ: Mapping[str, str], *, limit: float = TIME_LIMIT) -> str | None:
    """Ask a program, unless it belongs to the active environment: reading an environment runs nothing of it."""
    # The environment that runs this code is trusted already.
    roots = {real_path(Path(environ[name])) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)}
    roots.discard(real_path(Path(sys.prefix)))
    if any(real_path(Path(command[0])).is_relative_to(root) for root in roots):
        return None
    # Nor may its children: nvcc calls the first gcc on PATH even in a dry run.
    entries = environ.get("PATH", "").split(os.pathsep)
    kept = [entry for entry in entries if not any(real_path(Path(entry)).is_relative_to(root) for root in roots)]
    environ = {**environ, "PATH": os.pathsep.join(kept)} if roots else environ
    return ask(command, environ, limit=limit)


# Programs on ``PATH``: every match in search order, once each.


def folders(environ: Mapping[str, str], root: Path = Path("/")) -> list[Path]:
    """The directories of ``PATH`` in order, without repetition; absolute ones are taken below ``root``."""
    entries = [entry for entry in environ.get("PATH", "").split(os.pathsep) if entry]
    return list(dict.fromkeys(below(root, entry) for entry in entries))


def below(root: Path, path: str) -> Path:
    """``path`` as seen from a file system whose root directory is ``root``."""
    if root == Path("/") or not path.startswith("/"):
        return Path(path)
    return root / path.lstrip("/")


def programs(search: Sequence[Path], name: re.Pattern[str]) -> Iterator[Path]:
    """Executable files whose whole name matches, in search order; sorted within a directory, shortest name first.

    The plain name (``gcc``) comes before its versioned sisters (``gcc-12``), as it is what a build would call.
    """
    for folder in search:
        try:
            names = [entry.name for entry in os.scandir(folder) if name.fullmatch(_stem(entry.name))]
        except OSError:
            continue
        for found in sorted(names, key=lambda text: (len(text), text)):
            path = folder / found
            if is_file(path) and os.access(path, os.X_OK):
                yield path


def _stem(name: str) -> str:
    return name[:-4] if name.lower().endswith(".exe") else name


HOME_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
"""Variables that name the directory of a toolkit, in the order of their precedence."""
_HERE = re.compile(r"^#\$ _HERE_=(\S.*)$", re.MULTILINE)
_NVCC = re.compile(r"nvcc")
_RELEASE = re.compile(r"\brelease (\d+\.\d+)")
_TEXT_VERSION = re.compile(r"CUDA Version (\d+\.\d+)")
_CUDART = re.compile(r"libcudart\.so\.(\d+\.\d+)\.\d+")
_LIBRARY_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "targets/aarch64-linux/lib")


def candidates(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[tuple[Path, str]]:
    """Directories that may hold a toolkit, in the order that builds look for one, with what led there."""
    for variable in HOME_VARIABLES:
        if value := environ.get(variable):
            yield below(root, value), variable
    for program in programs(folders(environ, root), _NVCC):
        if home := toolkit_of(program, environ):
            yield home, "nvcc on PATH"
    if value := environ.get("CONDA_PREFIX"):
        yield below(root, value), "CONDA_PREFIX"
    yield root / "usr/local/cuda", "/usr/local/cuda"
    yield from ((path, "/usr/local/cuda-*") for path in sorted((root / "usr/local").glob("cuda-*"), reverse=True))
    yield root / "opt/cuda", "/opt/cuda"


def find_toolkits(environ: Mapping[str, str], root: Path = Path("/")) -> dict[Path, str]:
    """Real directories that hold a CUDA toolkit, each once, with what first led there."""
    found: dict[Path, str] = {}
    for path, source in candidates(environ, root):
        real = real_path(path)
        if real not in found and (nvcc(real) or written_version(real)):
            found[real] = source
    return found


def toolkit_of(program: Path, environ: Mapping[str, str]) -> Path | None:
    """The toolkit directory that an ``nvcc`` on ``PATH`` belongs to.

    nvcc reads ``nvcc.profile`` from its own directory. An ``nvcc`` without one there is a wrapper (a distribution's
    script, a compiler cache): the real one names its directory in a dry run.
    """
    real = real_path(program)
    if is_file(real.parent / "nvcc.profile"):
        return real.parent.parent
    here = _first(_HERE, _ask_own([str(program), "--dryrun", "-x", "cu", os.devnull], environ))
    return Path(here).parent if here else None


def read_toolkit(folder: Path, environ: Mapping[str, str]) -> Toolkit:
    """The toolkit at ``folder``: the version that nvcc prints, otherwise the one in its files."""
    program = nvcc(folder)
    version = _first(_RELEASE, _ask_own([str(program), "--version"], environ)) if program else None
    return Toolkit(version or written_version(folder), str(folder), program is not None)


def nvcc(folder: Path) -> Path | None:
    """The compiler driver of a toolkit, if it has one."""
    found = (folder / "bin" / name for name in ("nvcc", "nvcc.exe"))
    return next(filter(is_file, found), None)


def written_version(folder: Path) -> str | None:
    """Version by ``version.json`` (from CUDA 11.1), ``version.txt`` (before), or the file name of the runtime."""
    try:
        entry = json.loads(read_regular(folder / "version.json"))["cuda"]["version"]
        return str(PythonVersion.parse(str(entry)))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    try:
        if version := _first(_TEXT_VERSION, read_regular(folder / "version.txt").decode("utf-8", "replace")):
            return version
    except OSError:
        pass
    names = (path.name for sub in _LIBRARY_FOLDERS for path in (folder / sub).glob("libcudart.so.*"))
    try:
        return next((match[1] for name in names if (match := _CUDART.fullmatch(name))), None)
    except OSError:
        return None


def _first(pattern: re.Pattern[str], text: str | None) -> str | None:
    match = pattern.search(text or "")
    return match[1] if match else None


# C and C++ compilers that ``nvcc`` and Triton can use as host compilers.


# conda's compilers are called by their full target name.
_NAME = re.compile(r"(?:\w+-conda-linux-gnu-)?(?P<kind>gcc|g\+\+|clang|clang\+\+)(?:-\d+(?:\.\d+)?)?")
_REAL_NAME = re.compile(r"(?:\w+-)*(?:gcc|g\+\+|clang|clang\+\+)(?:-\d+(?:\.\d+)?)?")
_CLANG_VERSION = re.compile(r"clang version (\d+(?:\.\d+)*)")
_GCC_VERSION = re.compile(r"^(\d+(?:\.\d+)*)$", re.MULTILINE)


def find_compilers(environ: Mapping[str, str], root: Path = Path("/")) -> list[Path]:
    """Compilers on ``PATH`` in its order, each real program once under the first name that leads to it.

    ``gcc`` and ``g++`` are two programs and both count: Triton calls the one, nvcc the other.
    """
    found: dict[Path, Path] = {}
    for path in programs(folders(environ, root), _NAME):
        real = real_path(path)
        # A compiler cache stands in for many compilers at once: there the name is the identity.
        found.setdefault(real if _REAL_NAME.fullmatch(real.name) else path, path)
    return list(found.values())


def read_compiler(path: Path, environ: Mapping[str, str]) -> HostCompiler | None:
    """Kind and version of the compiler at ``path``; None if it does not run.

    macOS and some clusters call clang ``gcc``: the answer, not the name, decides on the kind.
    """
    printed = _ask_own([str(path), "--version"], environ)
    if printed is None:
        return None
    if match := _CLANG_VERSION.search(printed):
        return HostCompiler("clang", match[1], str(path))
    match = _GCC_VERSION.search(_ask_own([str(path), "-dumpfullversion", "-dumpversion"], environ) or "")
    return HostCompiler("gcc", match[1] if match else None, str(path))


# Python interpreters on this host.


_INTERPRETERS_NAME = re.compile(r"python(?:[23](?:\.\d+)?t?)?")
_INTERPRETERS_VERSION = re.compile(r"^\d+\.\d+\.\d+$", re.MULTILINE)
# Runs on every Python since 2.7; -E and -S keep the caller's variables and start-up files out.
_QUESTION = ["-E", "-S", "-c", "import sys; sys.stdout.write('%d.%d.%d' % sys.version_info[:3])"]


def find_interpreters(environ: Mapping[str, str], root: Path = Path("/")) -> list[Path]:
    """Interpreters on ``PATH``, each real program once under the first name that leads to it.

    A version manager's shim is not an interpreter but a script that picks one by working directory: it represents every
    version that its manager has installed.
    """
    found: dict[Path, Path] = {}
    for path in programs(folders(environ, root), _INTERPRETERS_NAME):
        for real_one in _behind(path):
            found.setdefault(real_path(real_one), real_one)
    return list(found.values())


def read_interpreter(path: Path, environ: Mapping[str, str]) -> Interpreter | None:
    """Version of the interpreter at ``path``; None if it does not run."""
    match = _INTERPRETERS_VERSION.search(_ask_own([str(path), *_QUESTION], environ) or "")
    return Interpreter(match[0], str(path)) if match else None


def running_interpreter() -> Interpreter:
    """The interpreter that runs this code."""
    return Interpreter(platform.python_version(), sys.executable)


def is_shim(path: Path) -> bool:
    """Whether ``path`` is a script of a version manager (pyenv, asdf and their like keep them in ``shims``)."""
    if path.parent.name != "shims":
        return False
    try:
        with open_regular(path) as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _behind(path: Path) -> Iterator[Path]:
    """The target of ``path``: itself, or for a shim the interpreters that its manager has installed."""
    if not is_shim(path):
        yield path
        return
    manager = path.parent.parent
    for folder in ("versions", "installs/python"):
        for python in sorted((manager / folder).glob("*/bin/python")):
            if os.access(python, os.X_OK):
                yield python


# Installers on this host: uv, pip, conda and their like, with versions.


NAMES = ("uv", "pip", "conda", "mamba", "micromamba", "pixi", "poetry")

_VERSION = re.compile(r"\b(\d+\.\d+(?:\.\d+)*(?:(?:a|b|rc)\d+|\.dev\d+|\.post\d+)?)")


def find_installers(search: Sequence[Path]) -> dict[str, Path]:
    """The first program of each name in the directories ``search``."""
    found = ((name, next(programs(search, re.compile(re.escape(name))), None)) for name in NAMES)
    return {name: path for name, path in found if path is not None}


def read_installer(name: str, path: Path, environ: Mapping[str, str], *, limit: float = 1.0) -> Installer:
    """The installer at ``path`` with its version: from the metadata beside it, otherwise by running it.

    The ones written in Python take half a second and more to say their version; what was installed beside them says
    the same at once.
    """
    version = tool_version(name, path)
    if version is None:
        match = _VERSION.search(_ask_own([str(path), "--version"], environ, limit=limit) or "")
        version = match[1] if match else None
    return Installer(name, version, str(path))


def tool_version(name: str, path: Path) -> str | None:
    """Version by the installed metadata of the prefix that holds the program; None if that is not certain."""
    if is_shim(path):
        return None
    prefix = real_path(path).parent.parent
    metadata = [
        *prefix.glob(f"lib/python3*/site-packages/{name}-*.dist-info"),
        *prefix.glob(f"lib/python3*/dist-packages/{name}-*.dist-info"),
        *prefix.glob(f"lib/python3/dist-packages/{name}-*.dist-info"),
        *prefix.glob(f"conda-meta/{name}-[0-9]*.json"),
    ]
    versions = {entry.name.removeprefix(f"{name}-").removesuffix(".dist-info").split("-")[0] for entry in metadata}
    return versions.pop() if len(versions) == 1 else None
