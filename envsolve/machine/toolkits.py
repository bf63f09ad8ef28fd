"""CUDA toolkits on disk."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from envsolve.files import is_file, real_path
from envsolve.machine.model import Toolkit
from envsolve.machine.search_path import below, folders, programs
from envsolve.processes import ask

_HERE = re.compile(r"^#\$ _HERE_=(\S.*)$", re.MULTILINE)
_NVCC = re.compile(r"nvcc")
_RELEASE = re.compile(r"\brelease (\d+\.\d+)")
_TEXT_VERSION = re.compile(r"CUDA Version (\d+\.\d+)")
_CUDART = re.compile(r"libcudart\.so\.(\d+\.\d+)\.\d+")
_LIBRARY_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "targets/aarch64-linux/lib")


def candidates(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[tuple[Path, str]]:
    """Folders that may hold a toolkit, in the order that builds look for one, with what led there."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
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
    """Real folders that hold a CUDA toolkit, each once, with what first led there."""
    found: dict[Path, str] = {}
    for path, source in candidates(environ, root):
        real = real_path(path)
        if real not in found and (nvcc(real) or written_version(real)):
            found[real] = source
    return found


def toolkit_of(program: Path, environ: Mapping[str, str]) -> Path | None:
    """The toolkit folder that an ``nvcc`` on ``PATH`` belongs to.

    nvcc reads ``nvcc.profile`` from its own folder. An ``nvcc`` without one there is a stand-in (a distribution's
    script, a compiler cache): the real one names its folder in a dry run.
    """
    real = real_path(program)
    if is_file(real.parent / "nvcc.profile"):
        return real.parent.parent
    here = _first(_HERE, ask([str(program), "--dryrun", "-x", "cu", os.devnull], environ))
    return Path(here).parent if here else None


def read_toolkit(folder: Path, environ: Mapping[str, str]) -> Toolkit:
    """The toolkit at ``folder``: nvcc's own word on its version, else what the files say."""
    program = nvcc(folder)
    version = _first(_RELEASE, ask([str(program), "--version"], environ)) if program else None
    return Toolkit(version or written_version(folder), str(folder), program is not None)


def nvcc(folder: Path) -> Path | None:
    """The compiler driver of a toolkit, where it has one."""
    found = (folder / "bin" / name for name in ("nvcc", "nvcc.exe"))
    return next(filter(is_file, found), None)


def written_version(folder: Path) -> str | None:
    """Version by ``version.json`` (from CUDA 11.1), ``version.txt`` (before), or the file name of the runtime."""
    try:
        entry = json.loads((folder / "version.json").read_text())["cuda"]["version"]
        return ".".join(str(entry).split(".")[:2])
    except (OSError, ValueError, LookupError, TypeError):
        pass
    try:
        if version := _first(_TEXT_VERSION, (folder / "version.txt").read_text(errors="replace")):
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
