"""The recipe for a container of a plan: the images, and what is installed in which order.

All stages have one base: what one compiles links against the libc that it meets in the other. CUDA comes with the
wheels, so the base has none. Where sources are compiled, the toolkit's directory is copied out of an image that has it,
and stays behind in the stage that compiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypedDict
from urllib.parse import urlsplit

from msgspec.structs import replace
from packaging.requirements import Requirement

from envsolve._default_index import DEFAULT_INDEX
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.hardware import Distribution, DriverBranch, Image
from envsolve.formats import format_named
from envsolve.formats._packages import installable, is_tree
from envsolve.formats.pip import is_compiled, library_path
from envsolve.machine.model import Platform, one_line
from envsolve.planning.lock import assumptions_of
from envsolve.planning.plan import Plan
from envsolve.rules.platform import assumed, libc_of, libc_serves
from envsolve.solve.outcome import PlannedPackage
from envsolve.toolchain.model import SITE_PACKAGES, Toolchain
from envsolve.values import CudaVersion, DriverVersion

PREFIX = "/opt/env"
"""Where the environment is in the container."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A directory that is copied out of another image."""

    image: str
    folder: str


@dataclass(frozen=True, slots=True)
class Compiling:
    """The additions of the compiling stage to the base.

    Attributes:
        toolkit: Where nvcc is.
        arch_list: Default of ``TORCH_CUDA_ARCH_LIST``; None if the GPUs are not known.
        build_requires: Installed into the environment before the sources, which are compiled against its torch; without
            packages that are in the plan.
        variables: Other variables of the builds.
    """

    toolkit: Copied
    arch_list: str | None
    build_requires: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A container, step by step.

    Attributes:
        heading: What it is for, a line each.
        base: Image of every stage, ``python:3.12-slim-bookworm``.
        platform: ``linux/amd64`` or ``linux/arm64``.
        python: ``3.12``.
        wheels: Requirements with hashes of what is installed as it is.
        sources: Likewise of what is built from source distributions; None if nothing is.
        compiled: Likewise of those that are compiled in the environment itself.
        trees: Repositories that are built, ``name @ git+https://...``.
        compiled_trees: Likewise of those that are compiled in the environment itself.
        build_apt: Debian packages that the stage which builds takes beside the base.
        constraints: What later installs must keep, one a line.
        compiling: None if no CUDA code is compiled.
        compat: A ``libcuda`` that is newer than the driver; None if the driver is new enough.
        environment: Variables that the environment needs where it runs, ``PATH`` left out.
        path: Directories of programs, before all others.
        runtime_apt: Debian packages that it needs where it runs.
        driver: Oldest NVIDIA driver on the host; None for a plan without CUDA code.
        driver_cuda: CUDA version that no older driver reports; None if none such is known.
        gpus: Compute capabilities that the plan was judged for, lowest first.
        without_triton: Those of them that its Triton does not support, if it has one.
        logins: Hosts of package indexes that are not the public ones, and may ask who is there.
    """

    heading: tuple[str, ...]
    base: str
    platform: str
    python: str
    wheels: str
    sources: str | None
    compiled: str | None
    trees: tuple[str, ...]
    compiled_trees: tuple[str, ...]
    build_apt: tuple[str, ...]
    constraints: tuple[str, ...]
    compiling: Compiling | None
    compat: Copied | None
    environment: Mapping[str, str]
    path: tuple[str, ...]
    runtime_apt: tuple[str, ...]
    driver: str | None
    driver_cuda: str | None
    gpus: tuple[str, ...]
    without_triton: frozenset[str]
    logins: tuple[str, ...]

    @property
    def builds(self) -> bool:
        """Whether anything is built from its sources."""
        return bool(self.sources or self.compiled or self.trees or self.compiled_trees)

    @property
    def uses_gpus(self) -> bool:
        """Whether it holds code for GPUs."""
        return bool(self.driver or self.gpus)


@dataclass(frozen=True, slots=True)
class _Base:
    """An image that can be the base, and the one it is built on."""

    name: str
    arch: str
    stands_on: Distribution

    def runs(self, libc: str | None) -> bool:
        """Whether its libc runs programs made for another one; True if that is not known."""
        need, have = libc_of(Platform(libc=libc)), libc_of(Platform(libc=self.stands_on.libc))
        return need is None or (have is not None and libc_serves(have, need))


def recipe(plan: Plan, catalogue: Catalogue) -> Recipe:
    """Determine the container of a plan.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some file has no URL or hash.
        UsageError: No known image is suitable: the plan is for Windows or a Jetson, no base has its Python or libc, no
            image has its CUDA version. Or something is to come from this computer.
    """
    packages = installable(plan)
    _check_system(plan)
    _check_places(packages)
    assumes = assumptions_of(plan)
    base, compiling = _base(plan, assumes.arch or "x86_64", assumes.libc, catalogue)
    files = [package for package in packages if not is_tree(package)]
    trees = [package for package in packages if is_tree(package)]
    path, environment = _variables(plan)
    return Recipe(
        heading=tuple(_heading(plan)),
        base=base.name,
        platform="linux/arm64" if base.arch == "aarch64" else "linux/amd64",
        python=plan.python or "",
        wheels=_hashed(plan, [package for package in files if package.kind == "wheel"]),
        **_from_source(plan, files, trees),
        build_apt=(*(("g++",) if compiling else ()), *(("git",) if trees else ())),
        # The same text, since a build of the same version for another CUDA is another build.
        constraints=tuple(f"{package.name}==={package.version}" for package in files if package.evidence),
        compiling=compiling,
        compat=_compat(assumes.compat_libcuda, base, catalogue),
        environment=environment,
        path=path,
        runtime_apt=_runtime_apt(plan, bool(assumes.driver_required or assumes.gpus)),
        driver=assumes.driver_required,
        driver_cuda=_reported_by(assumes.driver_required, catalogue.drivers),
        gpus=assumes.gpus,
        without_triton=frozenset(
            item.compute_capability
            for item in plan.support
            if item.package == "triton" and item.level == "none" and item.compute_capability
        ),
        logins=_logins(files, catalogue),
    )


def _variables(plan: Plan) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Directories of programs, and the other variables that the environment needs in the container."""
    site_packages = f"{PREFIX}/lib/python{plan.python}/site-packages"
    found = {name: value.replace(SITE_PACKAGES, site_packages) for name, value in plan.environment.items()}
    first = found.pop("PATH", "").removesuffix(":$PATH")
    return (f"{PREFIX}/bin", *([first] if first else [])), found


class _FromSource(TypedDict):
    sources: str | None
    compiled: str | None
    trees: tuple[str, ...]
    compiled_trees: tuple[str, ...]


def _from_source(plan: Plan, files: Sequence[PlannedPackage], trees: Sequence[PlannedPackage]) -> _FromSource:
    """The builds: compiled packages separately, because they require torch and the toolkit to be there."""
    compiled = [package for package in files if is_compiled(package, plan)]
    sources = [package for package in files if package.kind == "sdist" and package not in compiled]
    references = {
        compiles: tuple(f"{t.name} @ {t.url}" for t in trees if is_compiled(t, plan) is compiles)
        for compiles in (False, True)
    }
    return {
        "sources": _hashed(plan, sources) if sources else None,
        "compiled": _hashed(plan, compiled) if compiled else None,
        "trees": tuple(references[False]),
        "compiled_trees": tuple(references[True]),
    }


def _logins(files: Sequence[PlannedPackage], catalogue: Catalogue) -> tuple[str, ...]:
    public = {urlsplit(address).hostname for address in (DEFAULT_INDEX, *(i.url for i in catalogue.indexes.values()))}
    hosts = {urlsplit(package.index).hostname or "" for package in files if package.index}
    return tuple(sorted(hosts - public - {""}))


def _runtime_apt(plan: Plan, uses_gpus: bool) -> tuple[str, ...]:
    """Compilers that are needed at run time: Triton compiles a stub in C for each kernel that it launches."""
    if plan.toolchain and plan.toolchain.compiles_at_use:
        return ("g++",)
    triton = any(package.name == "triton" for package in plan.packages)
    return ("gcc", "libc6-dev") if triton and uses_gpus else ()


def _reported_by(driver: str | None, branches: Sequence[DriverBranch]) -> str | None:
    """The lowest CUDA version that this driver or any newer one reports."""
    if driver is None:
        return None
    older = [
        CudaVersion.parse(branch.cuda)
        for branch in branches
        if DriverVersion.parse(branch.first).reaches(driver) is not True
    ]
    newer = [
        CudaVersion.parse(branch.cuda)
        for branch in branches
        if CudaVersion.parse(branch.cuda) > max(older, default=(0, 0))
    ]
    return "{}.{}".format(*min(newer)) if newer else None


def _heading(plan: Plan) -> Iterator[str]:
    yield f"envsolve plan for {', '.join(plan.requirements) or 'no requirements'}"
    for machine in plan.machines:
        yield f"machine: {one_line(machine)}"
    yield f"Python {plan.python}, variant {plan.cuda or 'none'}; facts of {plan.catalogue_date}"


def _hashed(plan: Plan, packages: Sequence[PlannedPackage]) -> str:
    return format_named("requirements").render(replace(plan, packages=tuple(packages)))


def _check_system(plan: Plan) -> None:
    platforms = [assumed(machine.platform) for machine in plan.machines]
    if len(systems := sorted({f"{platform.os}-{platform.arch}" for platform in platforms})) > 1:
        raise UsageError(
            f"a container is for one system, but the machines have {' and '.join(systems)}",
            hint="make a separate plan and file for each system",
        )
    for platform in platforms:
        if platform.os == "windows":
            raise UsageError("only Linux containers can use NVIDIA GPUs", hint="plan for --platform linux-x86_64")
        if platform.jetson:
            raise UsageError(
                "a container on a Jetson must have the libraries of the Jetson's L4T release",
                hint="start from NVIDIA's l4t image for your JetPack, and install "
                "the output of --format requirements in it",
            )


def _check_places(packages: Sequence[PlannedPackage]) -> None:
    for package in packages:
        if package.index is None and (package.url or "").startswith(("file:", "git+file:")):
            raise UsageError(
                f"{package.name} comes from {package.url}, which does not exist in the container",
                hint="request a commit of its repository (git+https://...), or for a file at a URL (https://...)",
            )


def _base(plan: Plan, arch: str, libc: str | None, catalogue: Catalogue) -> tuple[_Base, Compiling | None]:
    """The base image with the oldest suitable distribution, and its compilers."""
    bases = [
        _Base(f"{image.repository}:{tag}", arch, catalogue.distributions[image.distribution])
        for image in catalogue.images
        if image.repository == "python" and image.version == plan.python and arch in image.architectures
        for tag in image.tags
    ]
    serving = [base for base in bases if base.runs(libc)]
    if not serving:
        known = ", ".join(f"{base.name} ({base.stands_on.libc})" for base in bases)
        raise UsageError(
            f"the catalogue has no image with Python {plan.python} and {libc or 'glibc'} or newer for {arch}",
            hint=f"known: {known}" if known else "choose another Python: --python",
        )
    toolchain = plan.toolchain
    if toolchain is None or toolchain.nvcc is None:
        return serving[0], None
    for base in serving:
        gcc = base.stands_on.gcc
        toolkit = _toolkit(toolchain.nvcc, "devel", base, catalogue)
        if toolkit and gcc is not None and (toolchain.gcc_min or 0) <= gcc <= (toolchain.gcc_max or gcc):
            return base, _compiling(plan, toolchain, toolkit)
    raise UsageError(
        f"the catalogue has no image with nvcc {toolchain.nvcc}, {toolchain.host_compilers} and Python {plan.python}",
        hint="choose another CUDA variant (--cuda), or versions that have wheels",
    )


def _compiling(plan: Plan, toolchain: Toolchain, toolkit: Copied) -> Compiling:
    planned = {package.name for package in plan.packages}
    requires = tuple(line for line in toolchain.build_requires if Requirement(line).name not in planned)
    told = {name: value for name, value in toolchain.environment.items() if name != "TORCH_CUDA_ARCH_LIST"}
    if run_path := library_path(toolchain):
        told["LDFLAGS"] = run_path
    return Compiling(toolkit, toolchain.TORCH_CUDA_ARCH_LIST, requires, told)


def _compat(cuda: str | None, base: _Base, catalogue: Catalogue) -> Copied | None:
    if cuda is None:
        return None
    found = _toolkit(cuda, "base", base, catalogue)
    if found is None:
        raise UsageError(
            f"the catalogue has no image with the cuda-compat libcuda of CUDA {cuda}",
            hint="plan without cuda-compat, or install the cuda-compat package in an image of your own",
        )
    return Copied(found.image, f"{found.folder}/compat")


def _toolkit(cuda: str, kind: str, base: _Base, catalogue: Catalogue) -> Copied | None:
    """The newest of NVIDIA's images of a CUDA version and kind whose programs run on the base."""
    # Debian's nearest relative before others, and the least that has it before what has more.
    found = chain.from_iterable(
        (
            (DriverVersion.parse(image.version), image.distribution.startswith("ubuntu"), -len(tag), tag)
            for tag in image.tags
            if kind in tag.split("-")
        )
        for image in catalogue.images
        if _is_of(image, cuda) and base.runs(catalogue.distributions[image.distribution].libc)
        if not image.architectures or base.arch in image.architectures
    )
    best = max(found, default=None)
    return Copied(f"nvidia/cuda:{best[-1]}", "/usr/local/cuda-{}.{}".format(*CudaVersion.parse(cuda))) if best else None


def _is_of(image: Image, cuda: str) -> bool:
    return (
        image.repository == "nvidia/cuda"
        and not image.retired
        and CudaVersion.parse(image.version) == CudaVersion.parse(cuda)
    )
