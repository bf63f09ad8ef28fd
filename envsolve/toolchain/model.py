"""The packages that are compiled for a plan, the requirements for that, and the origin of nvcc."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.facts.builds import SourceProject
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.hardware import CompilerPackages
from envsolve.machine.model import Machine
from envsolve.packages.urls import UNREAD, Tree
from envsolve.solve.outcome import PlannedPackage, PlanWarning
from envsolve.values import CudaVersion

SITE_PACKAGES = "{site_packages}"
"""Stands in a variable's value for the environment's own directory of packages, which a plan cannot know."""


class Toolchain(msgspec.Struct, frozen=True):
    """Requirements for compiling the plan's CUDA sources, or a package whose wheel is on no index.

    Attributes:
        nvcc: CUDA version of the nvcc to compile with, ``12.8``; None if that is not known.
        host_compiler: The host compiler to use, ``gcc 13``: the machine's own where it is within all limits.
        TORCH_CUDA_ARCH_LIST: The variable's value for the plan's GPUs, ``8.6;8.9``; None if they are not known.
        host_compilers: Every host compiler within the limits, ``gcc 9 to 13``.
        compiles: The packages that are compiled as they are installed.
        compiles_at_use: The packages that compile CUDA code where they run, and need the toolchain there.
        build_requires: What must be installed before they are built without isolation.
        nvcc_packages: By package manager (``pip``, ``conda``, ``apt``), the packages that make up this nvcc.
        nvcc_from: Whose nvcc it is: the ``machine``'s own toolkit's, or that of the plan's own packages (``pip``); None
            if none is available.
        CUDA_HOME: Where that toolkit is; may begin with :data:`SITE_PACKAGES`.
        gcc_min: The oldest gcc major within the limits, ``gcc_max`` the newest; None for no bound that is known.
        environment: Other variables that must be set while the sources are compiled.
        get_nvcc: The shortest way to a toolchain if none is available, as a command.
        checks: Facts that were confirmed: that the nvcc knows the GPUs, that no PTX is left to an older driver.
    """

    nvcc: str | None = None
    host_compiler: str | None = None
    TORCH_CUDA_ARCH_LIST: str | None = None
    host_compilers: str | None = None
    compiles: tuple[str, ...] = ()
    build_requires: tuple[str, ...] = ()
    nvcc_packages: Mapping[str, tuple[str, ...]] = {}
    compiles_at_use: tuple[str, ...] = ()
    nvcc_from: Literal["machine", "pip"] | None = None
    CUDA_HOME: str | None = None
    gcc_min: int | None = None
    gcc_max: int | None = None
    environment: Mapping[str, str] = {}
    get_nvcc: str | None = None
    checks: tuple[str, ...] = ()


# Which packages of a plan compile CUDA code, and when.


# What torch.utils.cpp_extension imports, and runs where it is there: for sources that nobody has read.
_FOR_EXTENSIONS = ("setuptools", "wheel", "ninja")


class Compiled(msgspec.Struct, frozen=True):
    """A package that compiles CUDA code.

    Attributes:
        project: The requirements of its build; None if they are not recorded.
        when: While it is installed, when it is used, or at both times.
        build_requires: What must be installed before it is built without isolation.
    """

    name: str
    project: SourceProject | None
    when: Literal["install", "use", "both"] = "install"
    build_requires: tuple[str, ...] = ()

    @property
    def needs_torch(self) -> bool:
        """Whether it is known to be compiled against torch."""
        return any(Requirement(line).name == "torch" for line in self.build_requires)


def compiled_packages(packages: Sequence[PlannedPackage], catalogue: Catalogue) -> tuple[Compiled, ...]:
    """The packages whose CUDA code is compiled as they are installed.

    Those are sdists and trees of known projects, and what is requested by URL: trees whose build imports torch or
    that were not read, and archives that need torch.
    """
    found = []
    for package in packages:
        if package.kind != "sdist" or package.wheels_from:
            continue
        project = _project(package, catalogue.source_projects)
        if project is not None and project.compiles != "use":
            found.append(Compiled(package.name, project, project.compiles, project.build_requires))
        elif package.index is None and _may_compile(package):
            found.append(Compiled(package.name, project, build_requires=_requires_of(package.tree)))
    return tuple(found)


def _may_compile(package: PlannedPackage) -> bool:
    if package.tree is not None:
        return package.tree.needs_torch is not False
    return "torch" in package.requires or package.version == str(UNREAD)


def _requires_of(tree: Tree | None) -> tuple[str, ...]:
    """Build requirements that a tree states, and those of extensions' builds: ninja, which torch runs if installed."""
    said = tree.build_requires if tree is not None else ()
    named = {Requirement(line).name for line in said}
    torch = ("torch",) if tree is not None and tree.needs_torch else ()
    return (*said, *(name for name in (*torch, *_FOR_EXTENSIONS) if name not in named))


def compiled_when_used(
    packages: Sequence[PlannedPackage], asked: Collection[str], catalogue: Catalogue
) -> tuple[Compiled, ...]:
    """The packages that were requested by name and compile CUDA code at their first use.

    Packages that others require are left out: most of them work without (vllm's flashinfer has its kernels in wheels).
    """
    found = []
    for package in packages:
        project = _project(package, catalogue.source_projects) if package.name in asked else None
        if project is not None and project.compiles == "use" and "nvcc" in project.tools:
            found.append(Compiled(package.name, project, "use", project.build_requires))
    return tuple(found)


def about_other_sources(packages: Sequence[PlannedPackage], compiled: Sequence[Compiled]) -> Iterator[PlanWarning]:
    """Sources for which no toolchain could be named."""
    named = {one.name for one in compiled}
    for package in packages:
        pure = package.tree is not None and package.tree.needs_torch is False
        if package.wheels_from:
            text = f"the sdist of {package.name} {package.version} has no code: its build downloads the wheel from"
            hint = f"--extra-index-url {package.wheels_from} --index-strategy unsafe-best-match plans the wheel itself"
            yield PlanWarning("wheel-stub", f"{text} {package.wheels_from}, which no lock pins", hint)
        elif package.kind == "sdist" and package.name not in named and not pure:
            version = "" if package.version == str(UNREAD) else f" {package.version}"
            text = f"{package.name}{version} is built from source"
            yield PlanWarning("source-build", text, "to build it you need a compiler, and nvcc if it has CUDA code")


def is_unread(package: PlannedPackage, catalogue: Catalogue) -> bool:
    """Whether nothing is known about what a package that is built from a source tree depends on."""
    tree, project = package.tree, _project(package, catalogue.source_projects)
    if tree is None or tree.exact:
        return False
    return tree.unread is not None or not (package.requires or (project is not None and project.requires is not None))


def about_trees(packages: Sequence[PlannedPackage], catalogue: Catalogue) -> Iterator[PlanWarning]:
    """Warnings about facts of source trees that are unknown."""
    for package in packages:
        name, tree = package.name, package.tree
        if tree is None:
            continue
        project = _project(package, catalogue.source_projects)
        if tree.unread is not None:
            text = f"the source tree of {name} was not read: {tree.unread}"
            yield PlanWarning(
                "tree-unread", text, "plan again on a machine that can reach it; until then the plan cannot be locked"
            )
        elif not tree.exact and project is not None and project.requires is not None:
            source = catalogue.source(project.source)
            told = f" ({source.title})" if source else ""
            text = (
                f"{name} determines its dependencies only when it is built; the plan uses those of a known commit{told}"
            )
            yield PlanWarning("dependencies-guessed", text, None)
        elif not tree.exact and package.requires:
            text = (
                f"{name} determines its dependencies only when it is built; the plan uses the ones that its files list"
            )
            yield PlanWarning(
                "dependencies-guessed",
                text,
                "with --build-metadata, pip builds the package to read them; this runs code of the package",
            )
        elif is_unread(package, catalogue):
            text = f"{name} determines its dependencies only when it is built, and envsolve did not build it"
            yield PlanWarning(
                "dependencies-unknown",
                text,
                "add its dependencies to the requirements; envsolve install reports which are missing",
            )
        if tree.folder is not None and tree.unread is None:
            text = (
                f"{name} is built from the directory {tree.folder} on this machine, with the files that are there at "
                "install time"
            )
            yield PlanWarning(
                "folder", text, "to build it on other machines, request a commit of its repository: git+https://"
            )


def _project(package: PlannedPackage, projects: Sequence[SourceProject]) -> SourceProject | None:
    return source_project(package.name, None if package.version == str(UNREAD) else package.version, projects)


def source_project(name: str, version: str | None, projects: Sequence[SourceProject]) -> SourceProject | None:
    """The record of a project for its version; the record for its newest version if the version is not known."""
    own = [project for project in projects if project.package == name]
    if version is None:
        return own[-1] if own else None
    return next((p for p in own if SpecifierSet(p.versions).contains(Version(version), prereleases=True)), None)


# Where an nvcc is taken from: the machines' own toolkit, packages of the plan, or what has to be installed first.


_CONDAS = ("micromamba", "mamba", "conda")
_WITH_APT = ("debian", "ubuntu")


def nvcc_of(
    cuda: str, libraries: Sequence[str], machines: Sequence[Machine], compilers: Sequence[CompilerPackages]
) -> Toolchain:
    """The nearest source of the nvcc of a CUDA version, as a toolchain without other fields.

    The machines' own goes first: nothing is downloaded for it. Of package managers the default index is the nearest,
    since the environment is made from it anyway; from CUDA 13 on it has a whole nvcc.

    Args:
        cuda: ``13.0``.
        libraries: Further parts of the toolkit that are needed, ``curand``.
        machines: All that the sources are compiled on.
        compilers: What the package managers have.
    """
    from envsolve.rules.nvidia.toolchain import covers

    holders: dict[str, CompilerPackages] = {
        one.manager: one for one in compilers if "nvcc" in one.provides and covers(one, cuda)
    }
    packages = {manager: _filled(one, cuda, libraries) for manager, one in holders.items()}
    own = own_toolkit(cuda, machines)
    if own is not None:
        return Toolchain(nvcc=cuda, nvcc_from="machine", CUDA_HOME=own, nvcc_packages=packages)
    if "pip" in holders and all(m.platform is None or m.platform.os in (None, "linux") for m in machines):
        return Toolchain(nvcc=cuda, nvcc_from="pip", CUDA_HOME=holders["pip"].home, nvcc_packages=packages)
    return Toolchain(nvcc=cuda, nvcc_packages=packages, get_nvcc=_command(cuda, holders, packages, machines))


def reach_of(cuda: str, machines: Sequence[Machine], compilers: Sequence[CompilerPackages]) -> int:
    """The distance to the nvcc of a CUDA version: 0 on the machines, 1 in the plan, 2 elsewhere."""
    return {"machine": 0, "pip": 1, None: 2}[nvcc_of(cuda, (), machines, compilers).nvcc_from]


def own_toolkit(cuda: str, machines: Sequence[Machine]) -> str | None:
    """Where every one of the machines has a toolkit with an nvcc of a CUDA version; None if one has none there."""
    places = [
        {
            t.path
            for t in machine.toolkits or ()
            if t.nvcc and t.path and t.version and CudaVersion.parse(t.version) == CudaVersion.parse(cuda)
        }
        for machine in machines
    ]
    common = set.intersection(*places) if places else set()
    # A directory whose name says the version stays what it is when another toolkit is installed.
    return max(common, key=lambda path: (cuda in path, path), default=None)


def _filled(packages: CompilerPackages, cuda: str, libraries: Sequence[str]) -> tuple[str, ...]:
    major, lesser = CudaVersion.parse(cuda)
    lines = (*packages.packages, *(packages.libraries[name] for name in libraries if name in packages.libraries))
    return tuple(line.format(cuda=cuda, major=major, minor=lesser) for line in lines)


def _command(
    cuda: str,
    holders: Mapping[str, CompilerPackages],
    packages: Mapping[str, tuple[str, ...]],
    machines: Sequence[Machine],
) -> str | None:
    """The shortest way: by a conda that is there, otherwise by apt where it is, otherwise by micromamba."""
    present = {found.name for machine in machines for found in machine.installers or ()}
    program = next((name for name in _CONDAS if name in present), None)
    distros = {(machine.platform.distro or "").partition(" ")[0] for machine in machines if machine.platform}
    if "apt" in packages and program is None and distros and distros <= {*_WITH_APT}:
        home = (holders["apt"].home or "").format(cuda=cuda)
        return f"sudo apt-get install {shlex.join(packages['apt'])} && export CUDA_HOME={home}"
    if "conda" in packages:
        return _conda_command(cuda, program or _CONDAS[0], holders["conda"].home or ".", packages["conda"])
    return None


def _conda_command(cuda: str, program: str, home: str, packages: Sequence[str]) -> str:
    prefix = f"~/cuda-{cuda}"
    below = home.removeprefix(".")
    # What the packages depend on is only in their own channel, which a conda need not have among its own.
    channels = dict.fromkeys(line.partition("::")[0] for line in packages)
    wanted = [word for channel in channels for word in ("-c", channel)] + [*packages]
    cuda_home = f"{prefix}/{below}" if below else prefix
    return f"{program} create -y -p {prefix} {shlex.join(wanted)} && export CUDA_HOME={cuda_home}"


# What is compiled on Windows: with a compiler that the catalogue has no facts of, and by nobody here.


# What is said of gcc, and of ways to an nvcc for Linux.
_OF_LINUX = ("compiles", "compiles-at-use", "host-compiler", "nvcc")


def is_windows(machines: Sequence[Machine]) -> bool:
    """Whether one of the machines is."""
    return any(machine.platform is not None and machine.platform.os == "windows" for machine in machines)


def on_windows(toolchain: Toolchain, cautions: Sequence[PlanWarning]) -> tuple[Toolchain, tuple[PlanWarning, ...]]:
    """A toolchain planned for Linux without the parts that do not apply on Windows, and warnings about it."""
    told = [caution for caution in cautions if caution.code not in _OF_LINUX]
    names = ", ".join(dict.fromkeys((*toolchain.compiles, *toolchain.compiles_at_use)))
    if names:
        nvcc = f"nvcc {toolchain.nvcc}" if toolchain.nvcc else "an nvcc"
        text = f"{names} must be compiled from source with {nvcc} and Microsoft's C++ compiler; which versions "
        text += "of it are compatible is not known, and `envsolve install` supports only Linux"
        way = (
            "request versions that have wheels for Windows; or use WSL 2, which can use the GPU: --platform "
            "linux-x86_64"
        )
        told.insert(0, PlanWarning("compiles", text, way))
    plain = replace(
        toolchain, host_compiler=None, host_compilers=None, gcc_min=None, gcc_max=None, get_nvcc=None, nvcc_packages={}
    )
    return plain, tuple(told)
