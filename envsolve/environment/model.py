"""The contents of an environment, as its files describe it.

Paths are texts, absolute. ``None`` means "the files do not say", an empty tuple that the environment has none.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePath
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.binaries.names import GPU_LIBRARY
from envsolve.machine.model import Machine, Platform, Toolkit
from envsolve.rules.platform import Environment as Markers
from envsolve.values import PythonVersion

_EXTRA = re.compile(r"extra\s*==\s*[\"']([\w.-]+)[\"']")

Kind = Literal["venv", "uv", "conda", "pixi", "pipx", "uv-tool", "poetry", "system"]
Origin = Literal["PYTHONPATH", "environment", "user", "system", "pth"]


@dataclass(frozen=True, slots=True)
class Site:
    """A directory on the interpreter's path that holds packages.

    Attributes:
        path: The directory.
        origin: What puts it on the path: the variable ``PYTHONPATH``, the environment itself, the user's own packages,
            the Python that the environment is made from, or a ``.pth`` file.
        named_by: The ``.pth`` file.
    """

    path: str
    origin: Origin
    named_by: str | None = None


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed project, read from its ``.dist-info`` (or ``.egg-info``).

    Attributes:
        name: Normalised project name.
        version: With its local part, ``2.8.0+cu128``; None if METADATA is gone or damaged.
        site: The directory that it is installed in.
        info: The directory or file of its metadata.
        installer: What INSTALLER says, ``pip``, ``uv``, ``conda``.
        direct_url: The URL that it was installed from, if not from an index.
        requires: Requires-Dist lines.
        files: Paths relative to ``site`` that RECORD names; None without RECORD.
        missing: Those that are not there; what Python compiles is left out, and scripts.
        altered: Libraries that have another size than RECORD says: another distribution wrote them, or they are cut.
        record_fault: What is wrong with RECORD itself, ``cannot be read``.
    """

    name: str
    version: str | None
    site: str
    info: str
    installer: str | None = None
    direct_url: str | None = None
    requires: tuple[str, ...] = ()
    files: tuple[str, ...] | None = None
    missing: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    record_fault: str | None = None

    @property
    def label(self) -> str:
        """``torch 2.8.0+cu128``."""
        return f"{self.name} {self.version or '(version unknown)'}"


@dataclass(frozen=True, slots=True)
class CondaPackage:
    """A record of ``conda-meta``.

    Attributes:
        missing: Files of the record that are not there.
    """

    name: str
    version: str
    build: str
    record: str
    channel: str | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TorchFiles:
    """A ``torch`` package on the path, by its own files, whatever metadata lies beside it.

    Attributes:
        site: The directory that it lies in.
        version: From ``version.py``, with its local part; None if that is gone or damaged.
        toolkit: Version of the toolkit that it was built with; None for a CPU build.
        local: The variant in the local part: ``cu128``, ``cpu``, ``rocm6.3``; None if there is none.
        code: The list that torch's ``get_arch_list()`` returns; None if the library is gone or damaged.
        cxx11_abi: Which C++11 ABI it has; None if no symbol shows it.
        numpy: Major of the NumPy that it was compiled against; None if it does not show.
        preloads: Libraries of the vendor's wheels that ``torch/__init__.py`` loads by their path before any other
            needs them, ``libnvJitLink``.
    """

    site: str
    version: str | None
    toolkit: str | None = None
    local: str | None = None
    code: tuple[str, ...] | None = None
    cxx11_abi: bool | None = None
    numpy: int | None = None
    preloads: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """``torch 2.8.0+cu128``."""
        return f"torch {self.version or '(version unknown)'}"


@dataclass(frozen=True, slots=True)
class Library:
    """The loader's view of one library.

    Attributes:
        path: The file.
        owner: Name of the distribution whose RECORD lists it; None outside the environment, and for conda.
        soname: The name by which others need it; the file's own name if it has none.
        needed: Names that the loader must find, in file order.
        rpath: Directories searched before ``LD_LIBRARY_PATH``; ``runpath`` after it. ``$ORIGIN`` is resolved.
        real: The file behind links.
        cut_off: Whether the file is shorter than what the loader maps of it, or unreadable.
    """

    path: str
    owner: str | None
    soname: str
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    real: str = ""
    cut_off: bool = False

    @property
    def name(self) -> str:
        """The file's name."""
        return PurePath(self.path).name

    @property
    def searched_first(self) -> tuple[str, ...]:
        """Directories that the loader searches before any other: RPATH counts only without RUNPATH."""
        return () if self.runpath else self.rpath

    @property
    def on_gpu(self) -> bool:
        """Whether it is torch's or the GPU vendor's, or needs one of these."""
        return self.owner == "torch" or any(map(GPU_LIBRARY.match, (self.name, *self.needed)))


@dataclass(frozen=True, slots=True)
class ExtensionFiles:
    """The targets that the libraries of a package built on torch or on a GPU toolkit are compiled for.

    Attributes:
        package: Normalised name.
        libraries: The libraries read.
        stated: The version that its own ``version.py`` says, which has the variant where metadata lacks it.
        code: SASS and PTX that most kernels have; empty if it has no kernels.
        every: All SASS and PTX in it.
        cxx11_abi: The C++11 ABI that it expects of torch; None if no symbol shows it.
    """

    package: str
    libraries: tuple[str, ...]
    stated: str | None = None
    code: tuple[str, ...] = ()
    every: tuple[str, ...] = ()
    cxx11_abi: bool | None = None


@dataclass(frozen=True, slots=True)
class LoaderDirectory:
    """A directory outside the environment that the dynamic loader searches.

    Attributes:
        path: The directory.
        origin: ``LD_LIBRARY_PATH``, or the loader's own configuration.
        libraries: The GPU libraries in it by the name by which they are needed, with the file behind it.
    """

    path: str
    origin: Literal["LD_LIBRARY_PATH", "ld.so.conf"]
    libraries: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BuildTools:
    """The tools that a build in the environment would find.

    Attributes:
        home: The directory that the toolkit's variable names, whether it exists or not.
        home_toolkit: The toolkit there, or None.
        path_toolkit: The toolkit of the ``nvcc`` that PATH gives.
        compilers: C compilers, in the order of PATH with the environment's own programs first.
        python_h: The interpreter's ``Python.h``; None if it is not there.
    """

    home: str | None = None
    home_toolkit: Toolkit | None = None
    path_toolkit: Toolkit | None = None
    compilers: tuple[str, ...] = ()
    python_h: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment.

    Attributes:
        prefix: Its root directory.
        kind: What made it.
        program: Its interpreter; None if that is gone, or leads to one that is.
        python: ``3.12.1``, or ``3.12`` where no more is known.
        arch: Architecture of its interpreter, ``x86_64``.
        base: Prefix of the Python that it is made from; ``prefix`` itself where it has its own.
        sites: In the order of the interpreter's path.
        distributions: In the order of ``sites``; of equal names the first is the one that is imported.
        conda: Records of ``conda-meta``.
        torches: Every ``torch`` package on the path; the first is the one that is imported.
        libraries: All that it holds, each file once.
        extensions: Packages with code of their own; None if they were not looked at.
        numpy_1: By name of a package beside NumPy 2, its first library that was compiled against NumPy 1.
        loader: Directories outside that the loader searches, in its order.
        tools: What compiling would find.
        unreadable: What is damaged, each with the reason.
    """

    prefix: str
    kind: Kind
    program: str | None
    python: str | None
    arch: str | None
    base: str
    sites: tuple[Site, ...]
    distributions: tuple[Distribution, ...]
    conda: tuple[CondaPackage, ...] = ()
    torches: tuple[TorchFiles, ...] = ()
    libraries: tuple[Library, ...] = ()
    extensions: tuple[ExtensionFiles, ...] | None = None
    numpy_1: Mapping[str, str] = field(default_factory=dict)
    loader: tuple[LoaderDirectory, ...] = ()
    tools: BuildTools = field(default_factory=BuildTools)
    unreadable: tuple[str, ...] = ()

    @property
    def torch(self) -> TorchFiles | None:
        """The torch that is imported."""
        return next(iter(self.torches), None)

    @property
    def gpu_libraries(self) -> tuple[Library, ...]:
        """Torch's libraries, the vendor's, and those that need one of these."""
        return tuple(library for library in self.libraries if library.on_gpu)

    def distribution(self, name: str) -> Distribution | None:
        """The distribution of a project that is imported."""
        return next(self.named(name), None)

    def named(self, name: str) -> Iterator[Distribution]:
        """All distributions of a project, the one that is imported first."""
        return (d for d in self.distributions if d.name == name)

    def site(self, path: str) -> Site | None:
        """The directory with that role on the path."""
        return next((site for site in self.sites if site.path == path), None)


# What installed distributions ask of each other, by their metadata, in the environment at hand.


def torch_distribution(environment: Environment) -> Distribution | None:
    """The metadata that lies beside the torch that is imported."""
    torch = environment.torch
    return next((d for d in environment.named("torch") if torch and d.site == torch.site), None)


def needs(environment: Environment, distribution: Distribution | None) -> Mapping[str, Requirement]:
    """Requirements of a distribution in this environment, without extras, by normalised name."""
    return {canonicalize_name(r.name): r for r in _applicable(environment, distribution)} if distribution else {}


def requiring(environment: Environment, name: str) -> list[Distribution]:
    """The distributions that require a project, those that do so only with an extra last.

    Which extras were requested is written nowhere, so what any extra requires counts as required.
    """
    certain = [d for d in environment.distributions if name in needs(environment, d)]
    mentioned = re.compile(re.escape(name).replace("\\-", "[-_.]+"), re.IGNORECASE)
    likely = (d for d in environment.distributions if any(map(mentioned.match, d.requires)))
    return [*certain, *(d for d in likely if name in _needs_of_extras(environment, d) and d not in certain)]


def _needs_of_extras(environment: Environment, distribution: Distribution) -> set[str]:
    extras = {extra for line in distribution.requires for extra in _EXTRA.findall(line)}
    return {canonicalize_name(r.name) for extra in extras for r in _applicable(environment, distribution, extra)}


def _applicable(environment: Environment, distribution: Distribution, extra: str = "") -> Iterator[Requirement]:
    # An environment that does not state its Python is read as if it had the one that reads it.
    minor = str(PythonVersion.parse(environment.python or platform.python_version()))
    markers = {**_markers(minor, environment.arch or "x86_64"), "extra": extra}
    for line in distribution.requires:
        if not extra and "extra ==" in line and " or " not in line:
            continue  # most lines of large projects; parsing them takes longer than all else
        try:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(markers):
                yield requirement
        except (InvalidRequirement, ValueError):
            continue


@lru_cache
def _markers(minor: str, arch: str) -> dict[str, str]:
    """The values of environment markers for the environment's own Python."""
    return dict(Markers.of(Machine(platform=Platform("linux", arch)), minor).markers)


def pinned(requirement: Requirement) -> str:
    """``numpy==2.1.0``: a requirement without its marker, as an installer accepts it."""
    return f"{requirement.name}{requirement.specifier}"


def satisfies(version: str | None, specifier: SpecifierSet) -> bool:
    """Whether a specifier accepts a version; invalid versions are not judged."""
    try:
        return version is None or specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


def release(version: str | None) -> tuple[int, ...]:
    """The numbers of a version, ``(9, 10, 2, 21)``; empty if it is not a version."""
    try:
        return Version(version or "").release
    except InvalidVersion:
        return ()


def pinned_version(requirement: Requirement) -> str | None:
    """The only version that a requirement allows; None if it allows several."""
    exact = [s.version for s in requirement.specifier if s.operator in ("==", "===") and "*" not in s.version]
    return exact[0] if exact else None
