"""The libraries of an environment, and where the loader finds what each of them needs, by the rules of ``ld.so(8)``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from envsolve.binaries.elf import MAGIC, read_elf
from envsolve.environment.distributions import LIBRARY
from envsolve.environment.model import Environment
from envsolve.environment.read import loader_folders
from envsolve.errors import UsageError
from envsolve.system.files import is_file, real_path

#: The name of what Python imports says so; others are libraries, or plug-ins that their owner loads by name.
_MODULE = re.compile(r".+\.(?:cpython-\d+t?-[\w-]+|abi3t?)\.so")
#: Torch's own libraries, by name.
OF_TORCH = re.compile(r"lib(?:torch|c10)[\w-]*\.so(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class Library:
    """What the loader reads of one file.

    Attributes:
        path: The file, links resolved.
        name: Its file name, before links are.
        owner: The distribution that it is of; None for one outside the environment, or of conda.
        soname: The name that others need it by.
        needed: What it needs, in its order.
        rpath: Folders that come before LD_LIBRARY_PATH; ``runpath`` after it. ``$ORIGIN`` is resolved.
    """

    path: Path
    name: str
    owner: str | None
    soname: str
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()

    @property
    def is_module(self) -> bool:
        """Whether Python imports it."""
        return bool(_MODULE.fullmatch(self.name))


def read_library(path: Path, owner: str | None = None) -> Library | None:
    """The loader's view of a file; None for what is no library, or is damaged."""
    if not is_file(path):  # a pipe would be waited for
        return None
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return None
            header = read_elf(file, path.name)
    except (OSError, UsageError):
        return None
    folders = [tuple(_with_origin(entry, path) for entry in entries) for entries in (header.rpath, header.runpath)]
    return Library(real_path(path), path.name, owner, header.soname or path.name, header.needed, *folders)


def _with_origin(entry: str, path: Path) -> str:
    origin = str(path.parent)
    return os.path.normpath(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))


def loader_of(environment: Environment, environ: Mapping[str, str], root: Path = Path("/")) -> Loader:
    """The loader as an environment's Python would find it.

    Args:
        environ: For LD_LIBRARY_PATH.
        root: Folder that stands for ``/`` where the loader's configuration is read.
    """
    folders = list(loader_folders(environ, root))
    named = [folder for folder, origin in folders if origin == "LD_LIBRARY_PATH"]
    usual = [folder for folder, origin in folders if origin != "LD_LIBRARY_PATH"]
    program = real_path(Path(environment.program)) if environment.program else None
    preloads = environment.torch.preloads if environment.torch else ()
    return Loader(own_libraries(environment), program, preloads, (named, usual))


def own_libraries(environment: Environment) -> Iterator[Library]:
    """Every library in the environment, each file once."""
    seen: set[Path] = set()
    for path, owner in _files(environment):
        library = read_library(path, owner)
        if library and library.path not in seen:
            seen.add(library.path)
            yield library


def _files(environment: Environment) -> Iterator[tuple[Path, str | None]]:
    for distribution in environment.distributions:
        for file in distribution.files or ():
            if LIBRARY.search(file):
                yield Path(distribution.site) / file, distribution.name
    if environment.conda:
        yield from ((path, None) for path in sorted((Path(environment.prefix) / "lib").glob("*.so*")))


class Loader:
    """Finds libraries as the loader does, for those that one Python process loads."""

    """Args:
    libraries: Those of the environment.
    program: Its interpreter, links resolved.
    preloads: Names without ``.so``, ``libnvJitLink``, of what torch loads by its path before any other needs it.
    folders: Folders of LD_LIBRARY_PATH, and those of the loader's own configuration, each in their order.
    """

    def __init__(
        self,
        libraries: Iterable[Library],
        program: Path | None = None,
        preloads: Collection[str] = (),
        folders: tuple[Sequence[Path], Sequence[Path]] = ((), ()),
    ) -> None:
        self.own = tuple(libraries)
        self._preloads = frozenset(preloads)
        self._program = program
        self._named, self._usual = (tuple(map(str, some)) for some in folders)
        self._read: dict[Path, Library | None] = {library.path: library for library in self.own}
        self._names: dict[str, frozenset[str]] = {}
        self._closures: dict[Path, tuple[tuple[Library, ...], tuple[str, ...]]] = {}

    @cached_property
    def _by_soname(self) -> Mapping[str, Library]:
        """The environment's own by name; torch's and NVIDIA's before copies that another package brings."""
        first = sorted(self.own, key=lambda lib: not (lib.owner or "").startswith(("torch", "nvidia-")))
        return {name: library for library in reversed(first) for name in (library.soname, library.name)}

    @cached_property
    def everywhere(self) -> tuple[Library, ...]:
        """The program, and all that it needs: what is found in it serves every library."""
        program = read_library(self._program) if self._program else None
        return self.closure(program)[0] if program else ()

    @cached_property
    def needed_by(self) -> Mapping[Path, tuple[Library, ...]]:
        """The environment's libraries that each library is loaded for, itself left out."""
        found: dict[Path, list[Library]] = {}
        for library in self.own:
            for other in self.closure(library)[0][1:]:
                found.setdefault(other.path, []).append(library)
        return {path: tuple(users) for path, users in found.items()}

    @cached_property
    def loaded_by_torch(self) -> Mapping[str, Library]:
        """What importing torch loads, by name: who comes after it is given these, and no others."""
        roots = [lib for lib in self.own if lib.name in ("libtorch_python.so", "libtorch_global_deps.so")]
        return {lib.soname: lib for root in roots for lib in self._walk(root, {})[0]}

    def of_torch(self, library: Library) -> bool:
        """Whether a library stands on torch, and so is loaded after it."""
        return library.owner != "torch" and any(OF_TORCH.fullmatch(name) for name in library.needed)

    def closure(self, library: Library) -> tuple[tuple[Library, ...], tuple[str, ...]]:
        """A library and all that is loaded for it, nearest first, and the names that are not found."""
        if library.path not in self._closures:
            loaded = self.loaded_by_torch if self.of_torch(library) else {}
            self._closures[library.path] = self._walk(library, loaded)
        return self._closures[library.path]

    def _walk(self, library: Library, loaded: Mapping[str, Library]) -> tuple[tuple[Library, ...], tuple[str, ...]]:
        found, missing, seen = [library], dict[str, None](), {library.soname}
        for one in found:  # grows while it is walked
            for name in one.needed:
                if name in seen:
                    continue
                seen.add(name)
                other = loaded.get(name) or self.locate(name, one)
                if other is None:
                    missing[name] = None
                else:
                    seen.add(other.soname)
                    found.append(other)
        return tuple(found), tuple(missing)

    def locate(self, name: str, by: Library) -> Library | None:
        """The library of a name that one needs; None where there is none.

        One of the environment that is not on the loader's path is found all the same: its owner loads it before.
        """
        own = self._by_soname.get(name)
        if own and name.partition(".so")[0] in self._preloads:
            return own
        before = () if by.runpath else by.rpath
        for folder in (*before, *self._named, *by.runpath):
            if found := self._in(folder, name):
                return found
        return own or next((found for folder in self._usual if (found := self._in(folder, name))), None)

    def _in(self, folder: str, name: str) -> Library | None:
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder))  # noqa: PTH208  names alone are asked for
            except OSError:
                self._names[folder] = frozenset()
        if name not in self._names[folder]:
            return None
        path = real_path(Path(folder) / name)
        if path not in self._read:
            self._read[path] = read_library(path)
        return self._read[path]
