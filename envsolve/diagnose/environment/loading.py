"""Where the loader finds a library that another needs, by the rules of ``ld.so(8)``.

For each name: the RPATH of who needs it (only where it has no RUNPATH), LD_LIBRARY_PATH, its RUNPATH, the loader's
configuration. A name that is loaded already is not searched again, so what torch loads itself, and what its own
libraries find by their RPATH, serves everyone after them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from envsolve.diagnose.environment.model import Environment, SharedLibrary

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
