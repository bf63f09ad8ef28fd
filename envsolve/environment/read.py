"""Reading an environment: every source of it joined into one value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from envsolve.environment.binaries import read_extensions, read_libraries, read_torch
from envsolve.environment.distributions import leftovers, read_conda, read_distributions
from envsolve.environment.layout import read_layout
from envsolve.environment.model import BuildTools, Environment, LoaderFolder
from envsolve.machine.model import Toolkit
from envsolve.machine.tools import below, folders, nvcc, programs, written_version
from envsolve.system.files import is_file, read_regular, real_path
from envsolve.values import PythonVersion

# What lies outside an environment and decides in it: the loader's folders, toolkits, compilers, headers.


_SONAME = re.compile(r"lib(?:cuda|cu(?:blas|dnn|fft|rand|solver|sparse|pti|file|dss|tensor)|nv|nccl)[\w-]*\.so\.\d+")
_NVCC = re.compile(r"nvcc")
_COMPILER = re.compile(r"(?:[\w]+-conda-linux-gnu-)?(?:gcc|cc|clang)")
_STANDARD = (
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "usr/lib64",
    "usr/local/lib",
)
_MOST_INCLUDES = 64


def read_loader(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[LoaderFolder]:
    """Folders with CUDA libraries in the loader's order: LD_LIBRARY_PATH, then its configuration and usual places."""
    for folder, origin in loader_folders(environ, root):
        if libraries := _cuda_libraries(folder):
            yield LoaderFolder(str(folder), origin, libraries)


def loader_folders(
    environ: Mapping[str, str], root: Path = Path("/")
) -> Iterator[tuple[Path, Literal["LD_LIBRARY_PATH", "ld.so.conf"]]]:
    """The folders in which the loader looks for any library, in its order, each once."""
    named = [below(root, entry) for entry in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if entry]
    seen = {real_path(folder) for folder in named}
    for folder in named:
        yield folder, "LD_LIBRARY_PATH"
    for folder in (*_configured(root / "etc/ld.so.conf", root), *(root / place for place in _STANDARD)):
        real = real_path(folder)
        if real not in seen:
            seen.add(real)
            yield folder, "ld.so.conf"


def _cuda_libraries(folder: Path) -> Mapping[str, str]:
    try:
        names = sorted(path.name for path in folder.iterdir() if _SONAME.fullmatch(path.name))
    except OSError:
        return {}
    return {name: str(real_path(folder / name)) for name in names}


def _configured(path: Path, root: Path) -> list[Path]:
    """The folders of ``ld.so.conf`` and of the files that it includes, each file once."""
    found: list[Path] = []
    pending, read = [path], set[Path]()
    while pending and len(read) < _MOST_INCLUDES:
        file = pending.pop(0)
        if file in read:
            continue
        read.add(file)
        try:
            lines = read_regular(file).decode("utf-8", "replace").splitlines()
        except OSError:
            continue
        for line in lines:
            words = line.partition("#")[0].split()
            if words[:1] == ["include"] and len(words) == 2:
                pattern = words[1].lstrip("/")
                start = root if words[1].startswith("/") else file.parent
                pending += sorted(start.glob(pattern)) if ".." not in pattern else []
            elif len(words) == 1:
                found.append(below(root, words[0]))
    return found


def read_tools(prefix: Path, base: Path, python: str | None, environ: Mapping[str, str]) -> BuildTools:
    """What compiling would find: toolkits, compilers and ``Python.h``; nothing is run."""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    search = folders(environ)
    on_path = next(programs(search, _NVCC), None)
    own = prefix / "bin"
    compilers = programs([own, *(folder for folder in search if folder != own)], _COMPILER)
    return BuildTools(
        cuda_home=home,
        cuda_home_toolkit=_toolkit(Path(home)) if home else None,
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


def read_environment(prefix: Path, environ: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Environment:
    """Read an environment, the code of its extensions included, which may be gigabytes.

    Nothing of the environment is imported or run, and damage in it is part of the answer.

    Args:
        prefix: Its root folder.
        environ: What decides beside its files: PYTHONPATH, LD_LIBRARY_PATH, CUDA_HOME, PATH, HOME.
        root: Folder that stands for ``/`` where the loader's configuration is read.

    Raises:
        UsageError: There is no environment at ``prefix``.
    """
    outline = read_outline(prefix, environ, root=root)
    return replace(outline, extensions=tuple(read_extensions(outline.distributions, outline.libraries)))


def read_outline(prefix: Path, environ: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Environment:
    """Likewise, without the code of extensions: what metadata, headers and torch's own files tell.

    Raises:
        UsageError: There is no environment at ``prefix``.
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
        loader=tuple(read_loader(environ, root)),
        tools=read_tools(layout.prefix, layout.base, layout.python, environ),
        unreadable=(*unreadable, *(text for folder in folders for text in leftovers(folder))),
    )
