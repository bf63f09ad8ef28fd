"""Measuring one package, wheel or installed: its metadata, then only the files that hold the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name

from envsolve.catalogue.measure import ptxas, pytorch
from envsolve.catalogue.measure.artefact import Artefact, read_text
from envsolve.catalogue.measure.library import read_library
from envsolve.catalogue.measure.model import Assembler, Library, Measurement
from envsolve.errors import UsageError

_LIBRARY = re.compile(r"\.(so(\.\d+)*|dll|pyd)$")
_TOOL = re.compile(
    r"(.*/)?bin/(nvcc|ptxas(-\w+)?|cuobjdump|nvdisasm|fatbinary|cicc|nvlink|nvprune|cudafe\+\+|bin2c)(\.exe)?"
)
# Such files have some hundred bytes.
_LARGEST_VERSION = 1 << 16
_METADATA = re.compile(r"[^/]+\.dist-info/(METADATA|WHEEL)")


@dataclass(frozen=True, slots=True)
class Metadata:
    """What METADATA and WHEEL say."""

    package: str | None = None
    version: str | None = None
    requires_python: str | None = None
    requires: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


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
    if pytorch.VERSION_FILE in files:
        own_version, cuda = pytorch.read_version(read_text(artefact, pytorch.VERSION_FILE, _LARGEST_VERSION))
        version = own_version or version
        for path in filter(pytorch.PYTHON_LIBRARY.fullmatch, files):
            with artefact.open(path) as file:
                flags, abi = pytorch.read_python_library(file)
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
        if _LIBRARY.search(path):
            with artefact.open(path) as file:
                library = read_library(file, path)
            if library.sass or library.ptx or library.needed:
                found.append(library)
    return tuple(found)


def read_metadata(artefact: Artefact) -> Metadata:
    """METADATA and WHEEL of the package.

    Raises:
        UsageError: There is no METADATA.
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
    for path in filter(ptxas.is_ptxas, files):
        with artefact.open(path) as file:
            found.append(ptxas.read_ptxas(file, path))
    return tuple(found)
