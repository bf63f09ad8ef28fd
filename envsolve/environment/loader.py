"""The libraries of an environment, and where the dynamic loader finds what each of them needs.

The search is that of ``ld.so(8)``. For each name: the RPATH of the library that needs it, if it has no RUNPATH; then
LD_LIBRARY_PATH; its RUNPATH; the loader's configuration and usual directories. A name that is loaded already is not
searched again, so every later library can use what torch has loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from envsolve.binaries.elf import MAGIC, SUPPORTED, read_elf
from envsolve.binaries.names import ACCELERATOR_LIBRARY, DRIVER_LIBRARY, LIBRARY_FILE, is_toolkit_package
from envsolve.environment.model import Distribution, Environment, Library, LoaderDirectory
from envsolve.errors import UsageError
from envsolve.machine.tools import below
from envsolve.system.files import is_file, is_folder, open_regular, read_regular, real_path

OF_TORCH = re.compile(r"lib(?:torch|c10)[\w-]*\.so(?:\.\d+)*")
"""Torch's own libraries, by name."""
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
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


def read_library(path: Path, owner: str | None = None) -> Library | None:
    """The loader's view of a file; None if the loader would pass over it, or it is a script for the linker."""
    if not is_file(path):  # opening a pipe would wait
        return None
    real = str(real_path(path))
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(len(SUPPORTED))
            if size and (not start.startswith(MAGIC) or (len(start) == len(SUPPORTED) and start != SUPPORTED)):
                return None
            header = read_elf(file, path.name)
    except OSError:
        return None
    except UsageError:
        return Library(str(path), owner, path.name, real=real, cut_off=True)
    origin = str(path.parent)
    rpath, runpath = (
        tuple(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for entry in entries)
        for entries in (header.rpath, header.runpath)
    )
    soname = header.soname or path.name
    return Library(str(path), owner, soname, header.needed, rpath, runpath, real, cut_off=header.end > size)


def read_libraries(distributions: Sequence[Distribution], prefix: Path) -> Iterator[Library]:
    """Every library of an environment, each file once; damaged ones only of torch and the GPU vendor."""
    seen: set[str] = set()
    for path, owner in _library_files(distributions, prefix):
        library = read_library(path, owner)
        if library and library.real not in seen and (library.on_gpu or not library.cut_off):
            seen.add(library.real)
            yield library


def _library_files(distributions: Sequence[Distribution], prefix: Path) -> Iterator[tuple[Path, str | None]]:
    for distribution in distributions:
        for file in distribution.files or ():
            if LIBRARY_FILE.search(file):
                yield Path(distribution.site) / file, distribution.name
    if is_folder(prefix / "conda-meta"):
        yield from ((path, None) for path in sorted((prefix / "lib").glob("*.so*")))


def read_directories(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[LoaderDirectory]:
    """The directories in which the loader looks for any library, in its order, each once.

    Args:
        environ: For LD_LIBRARY_PATH.
        root: Directory to use as ``/``.
    """
    named = [below(root, entry) for entry in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if entry]
    for path in named:
        yield LoaderDirectory(str(path), "LD_LIBRARY_PATH", _gpu_libraries(path))
    seen = {real_path(path) for path in named}
    for path in (*_configured(root / "etc/ld.so.conf", root), *(root / place for place in _STANDARD)):
        real = real_path(path)
        if real not in seen:
            seen.add(real)
            yield LoaderDirectory(str(path), "ld.so.conf", _gpu_libraries(path))


def _gpu_libraries(directory: Path) -> Mapping[str, str]:
    names = sorted(filter(ACCELERATOR_LIBRARY.fullmatch, _names(directory)))
    return {name: str(real_path(directory / name)) for name in names}


def _names(directory: Path | str) -> Sequence[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  only the names are needed
    except OSError:
        return ()


def _configured(path: Path, root: Path) -> list[Path]:
    """The directories of ``ld.so.conf`` and of the files that it includes, each file once."""
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


class Loader:
    """Finds libraries as the dynamic loader does for one Python process.

    Args:
        libraries: Those of the environment.
        directories: Where the loader looks outside it.
        program: Its interpreter, links resolved.
        preloads: Names without ``.so``, ``libnvJitLink``, that torch loads by their path before anything needs them.
    """

    def __init__(
        self,
        libraries: Iterable[Library],
        directories: Sequence[LoaderDirectory] = (),
        program: Path | None = None,
        preloads: Collection[str] = (),
    ) -> None:
        self.own = tuple(libraries)
        self._preloads = frozenset(preloads)
        self._program = program
        self._named = tuple(one.path for one in directories if one.origin == "LD_LIBRARY_PATH")
        self._usual = tuple(one.path for one in directories if one.origin != "LD_LIBRARY_PATH")
        self._read: dict[str, Library | None] = {library.real: library for library in self.own}
        self._listed: dict[str, frozenset[str]] = {}
        self._closures: dict[str, tuple[tuple[Library, ...], tuple[str, ...]]] = {}

    @cached_property
    def by_name(self) -> Mapping[str, Library]:
        """The environment's own by soname and file name; torch's and the vendor's before copies in other packages."""
        first = sorted(self.own, key=lambda library: not _of_stack(library))
        return {name: library for library in reversed(first) for name in (library.soname, library.name)}

    @cached_property
    def everywhere(self) -> tuple[Library, ...]:
        """The program and its libraries: every library can use their symbols."""
        program = read_library(self._program) if self._program else None
        return self.closure(program)[0] if program else ()

    @cached_property
    def needed_by(self) -> Mapping[str, tuple[Library, ...]]:
        """The environment's libraries for which each library (by its real path) is loaded, without itself."""
        found: dict[str, list[Library]] = {}
        for library in self.own:
            for other in self.closure(library)[0][1:]:
                found.setdefault(other.real, []).append(library)
        return {path: tuple(users) for path, users in found.items()}

    @cached_property
    def loaded_by_torch(self) -> Mapping[str, Library]:
        """Libraries that importing torch loads, by name: those that are loaded later get these and no others."""
        roots = [one for one in self.own if one.name in ("libtorch_python.so", "libtorch_global_deps.so")]
        return {library.soname: library for root in roots for library in self._walk(root, {})[0]}

    def of_torch(self, library: Library) -> bool:
        """Whether a library needs torch, and so is loaded after it."""
        return library.owner != "torch" and any(OF_TORCH.fullmatch(name) for name in library.needed)

    def closure(self, library: Library) -> tuple[tuple[Library, ...], tuple[str, ...]]:
        """A library and all that is loaded for it, nearest first, and the names that are not found."""
        if library.real not in self._closures:
            loaded = self.loaded_by_torch if self.of_torch(library) else {}
            self._closures[library.real] = self._walk(library, loaded)
        return self._closures[library.real]

    def _walk(self, library: Library, loaded: Mapping[str, Library]) -> tuple[tuple[Library, ...], tuple[str, ...]]:
        found, missing, seen = [library], dict[str, None](), {library.soname}
        for one in found:  # grows while it is walked
            for name in one.needed:
                if name in seen:
                    continue
                seen.add(name)
                other = loaded.get(name) or self.locate(name, one)[0]
                if other is None:
                    missing[name] = None
                else:
                    seen.add(other.soname)
                    found.append(other)
        return tuple(found), tuple(missing)

    def locate(self, name: str, by: Library) -> tuple[Library | None, str | None]:
        """The library that another gets for a name, and the directory in which the loader finds it.

        A library of the environment that is not on the loader's path is found in no directory: its owner loads it
        before. Torch does so only for the vendor's wheels.
        """
        own = self.by_name.get(name)
        if own and name.partition(".so")[0] in self._preloads:
            return own, None
        for directory in (*by.searched_first, *self._named, *by.runpath):
            if found := self._in(directory, name):
                return found, directory
        if own and (by.owner != "torch" or own.owner is None or _of_stack(own)):
            return own, None
        for directory in self._usual:
            if found := self._in(directory, name):
                return found, directory
        return None, None

    def holds(self, directory: str, name: str) -> bool:
        """Whether a directory has a file of a name."""
        if directory not in self._listed:
            self._listed[directory] = frozenset(_names(directory))
        return name in self._listed[directory]

    def _in(self, directory: str, name: str) -> Library | None:
        if not self.holds(directory, name):
            return None
        path = Path(directory) / name
        real = str(real_path(path))
        if real not in self._read:
            self._read[real] = read_library(path)
        return self._read[real]


def _of_stack(library: Library) -> bool:
    return library.owner is not None and (library.owner.startswith("torch") or is_toolkit_package(library.owner))


def loader_of(environment: Environment) -> Loader:
    """The loader of an environment's Python."""
    program = real_path(Path(environment.program)) if environment.program else None
    preloads = environment.torch.preloads if environment.torch else ()
    return Loader(environment.libraries, environment.loader, program, preloads)


@dataclass(frozen=True, slots=True)
class Shadow:
    """A library outside the environment that is loaded in place of the environment's own.

    Attributes:
        name: As it is needed, ``libnvJitLink.so.12``.
        needed_by: The library that needs it.
        outside: The file that the loader takes.
        directory: The directory of LD_LIBRARY_PATH in which it is found.
        own: The environment's own file.
        owner: The distribution of that.
    """

    name: str
    needed_by: Library
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
    named = {one.path for one in environment.loader if one.origin == "LD_LIBRARY_PATH"}
    if not named:
        return
    loader = loader_of(environment)
    # What torch's libraries find by their RPATH is loaded before anything else asks for it.
    settled = {
        name
        for library in environment.gpu_libraries
        if library.owner == "torch"
        for name in library.needed
        if any(loader.holds(directory, name) for directory in library.searched_first)
    }
    for library in environment.gpu_libraries:
        for name in library.needed:
            own = loader.by_name.get(name)
            if own is None or name in settled or not ACCELERATOR_LIBRARY.fullmatch(name):
                continue
            found, directory = loader.locate(name, library)
            if found and directory in named and found.real != own.real:
                settled.add(name)
                yield Shadow(name, library, found.real, directory, own.path, own.owner)


def unresolved(environment: Environment) -> dict[str, Library]:
    """GPU libraries that torch's own need and that neither the loader nor torch finds, with the library in need."""
    loader = loader_of(environment)
    found: dict[str, Library] = {}
    for library in (one for one in environment.libraries if one.owner == "torch"):
        wanted = filter(ACCELERATOR_LIBRARY.fullmatch, library.needed)
        for name in (one for one in wanted if not DRIVER_LIBRARY.fullmatch(one)):
            if loader.locate(name, library)[0] is None:
                found.setdefault(name, library)
    return found
