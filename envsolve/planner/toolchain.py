"""What the plan compiles from source, and the toolchain that this takes (rule 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Build, CompilerPackages, SourceProject
from envsolve.compat.toolchain import CompilerFacts, GccRange, arch_list, covers, gcc_for, nvcc_for
from envsolve.compat.versions import minor, numbers
from envsolve.machine.cc import ComputeCapability
from envsolve.machine.model import Machine
from envsolve.plan import Caution, PlannedPackage, Toolchain
from envsolve.resolve.direct import UNREAD

_NOT_ISOLATED = "without build isolation (--no-build-isolation), so that the build sees the torch of this plan"
_ARCH_LIST = "TORCH_CUDA_ARCH_LIST"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A package that the plan compiles; None for ``project`` where what it takes is not recorded."""

    name: str
    project: SourceProject | None


def compiled_packages(packages: Sequence[PlannedPackage], catalogue: Catalogue) -> tuple[Compiled, ...]:
    """The packages whose CUDA code is compiled as they are installed: source trees, and known projects' sdists."""
    found = []
    for package in packages:
        unread = package.version == str(UNREAD)
        if package.kind != "sdist" and not unread:
            continue
        project = _project(package, catalogue.source_projects)
        if unread or (project is not None and project.compiles == "install"):
            found.append(Compiled(package.name, project))
    return tuple(found)


def about_other_sources(packages: Sequence[PlannedPackage], compiled: Sequence[Compiled]) -> Iterator[Caution]:
    """Sources for which no toolchain could be named."""
    named = {one.name for one in compiled}
    for package in packages:
        if package.kind == "sdist" and package.name not in named:
            text = f"{package.name} {package.version} is built from source"
            yield Caution("source-build", text, "a compiler must be there, and for CUDA code an nvcc")


def toolchain_for(
    compiled: Sequence[Compiled], torch: Build, machines: Sequence[Machine], catalogue: Catalogue
) -> tuple[Toolchain, tuple[Caution, ...]]:
    """The toolchain that compiles packages against a torch build for all machines, and what to know about it."""
    facts = CompilerFacts.of(catalogue)
    cards = _cards(machines)
    nvcc, knows = nvcc_for(torch, cards, facts)
    gcc = gcc_for(torch, facts)
    archs, listed = arch_list(torch, cards, facts)
    toolchain = Toolchain(
        nvcc,
        _host_compiler(gcc, machines),
        archs,
        _in_words(gcc),
        tuple(one.name for one in compiled),
        tuple(dict.fromkeys(line for one in compiled if one.project for line in one.project.build_requires)),
        _nvcc_packages(nvcc, catalogue.compilers) if nvcc else {},
    )
    cautions = [
        Caution("compiles", _told(toolchain), f"build {'it' if len(compiled) == 1 else 'them'} {_NOT_ISOLATED}")
    ]
    cautions += [Caution("toolchain", r.text) for r in (knows, listed) if r.ok is False]
    if listed.ok is None:
        cautions.append(Caution("toolchain", listed.text, "name the GPUs: --gpu, --target, --machine"))
    cautions += _about_host(toolchain, gcc, machines)
    for one in compiled:
        if one.project is not None:
            cautions += _about_project(one.project, torch, cards)
    return toolchain, tuple(cautions)


def _project(package: PlannedPackage, projects: Sequence[SourceProject]) -> SourceProject | None:
    """What is recorded of a project, for its version where that is known, else for its newest."""
    own = [project for project in projects if project.package == package.name]
    if package.version == str(UNREAD):
        return own[-1] if own else None
    return next((p for p in own if SpecifierSet(p.versions).contains(Version(package.version), prereleases=True)), None)


def _nvcc_packages(cuda: str, compilers: Sequence[CompilerPackages]) -> dict[str, tuple[str, ...]]:
    """What each package manager installs for a whole nvcc of a CUDA version."""
    major, lesser = minor(cuda)
    return {
        one.manager: tuple(line.format(cuda=cuda, major=major, minor=lesser) for line in one.packages)
        for one in compilers
        if "nvcc" in one.provides and covers(one, cuda)
    }


def _cards(machines: Sequence[Machine]) -> list[ComputeCapability]:
    return sorted({gpu.cc for machine in machines for gpu in machine.gpus or () if gpu.cc is not None})


def _host_compiler(gcc: GccRange, machines: Sequence[Machine]) -> str | None:
    """The machines' own gcc where it is within the limits, else the one nearest to torch's own."""
    if gcc.empty:
        return None
    own = max((major for major in _gccs(machines) if gcc.holds(major)), default=gcc.preferred or gcc.last)
    return f"gcc {own}" if own is not None else None


def _gccs(machines: Sequence[Machine]) -> Iterator[int]:
    for machine in machines:
        for compiler in machine.host_compilers or ():
            if compiler.kind == "gcc" and compiler.version:
                yield numbers(compiler.version)[0]


def _in_words(gcc: GccRange) -> str | None:
    if gcc.first is not None and gcc.last is not None:
        return f"gcc {gcc.first} to {gcc.last}"
    if gcc.last is not None:
        return f"gcc {gcc.last} or older"
    return f"gcc {gcc.first} or newer" if gcc.first is not None else None


def _told(toolchain: Toolchain) -> str:
    parts = [f"nvcc {toolchain.nvcc}"] if toolchain.nvcc else []
    parts += [toolchain.host_compilers] if toolchain.host_compilers else []
    parts += [f"{_ARCH_LIST}={toolchain.TORCH_CUDA_ARCH_LIST}"] if toolchain.TORCH_CUDA_ARCH_LIST else []
    return f"{', '.join(toolchain.compiles)} will be compiled from source; that takes {', '.join(parts)}"


def _about_host(toolchain: Toolchain, gcc: GccRange, machines: Sequence[Machine]) -> Iterator[Caution]:
    """Compilers on the machines that do not serve."""
    bounds = "; ".join(reason.text for reason in gcc.reasons)
    if gcc.empty:
        yield Caution("host-compiler", f"no gcc compiles this: {bounds}")
        return
    majors = set(_gccs(machines))
    if majors and not any(gcc.holds(major) for major in majors):
        have = " and ".join(f"gcc {major}" for major in sorted(majors))
        yield Caution(
            "host-compiler",
            f"the machine has {have}; {bounds}",
            f"install {toolchain.host_compiler} and set CC and CXX",
        )
    toolkits = [t for machine in machines for t in machine.toolkits or () if t.nvcc and t.version]
    wanted = toolchain.nvcc
    if wanted and toolkits and not any(minor(t.version or "0") == minor(wanted) for t in toolkits):
        have = ", ".join(f"{t.version} in {t.path}" if t.path else str(t.version) for t in toolkits)
        text = f"the machine has nvcc {have}; torch was built with CUDA {wanted}"
        ways = "; or ".join(f"{manager}: {' '.join(lines)}" for manager, lines in toolchain.nvcc_packages.items())
        beside = f"install CUDA {wanted} beside it and set CUDA_HOME to it"
        yield Caution("nvcc", text, f"{beside} ({ways})" if ways else beside)


def _about_project(project: SourceProject, torch: Build, cards: Sequence[ComputeCapability]) -> Iterator[Caution]:
    """What the project itself asks for and the plan does not give."""
    if project.arch_variable is None and "nvcc" in project.tools:
        yield Caution("extension-archs", f"{project.package} chooses the GPUs to compile for by itself")
    elif project.arch_variable not in (None, _ARCH_LIST):
        text = f"{project.package} takes the GPUs to compile for from {project.arch_variable}, not from {_ARCH_LIST}"
        yield Caution("extension-archs", text, "see its documentation for how that is written")
    if project.min_cc is not None:
        too_old = [str(cc) for cc in cards if cc < ComputeCapability.parse(project.min_cc)]
        if too_old:
            text = (
                f"{project.package} compiles for cc {project.min_cc} and newer; cc {', '.join(too_old)} is not served"
            )
            yield Caution("extension-gpu", text)
    if project.cuda and torch.cuda and not SpecifierSet(project.cuda).contains(torch.cuda):
        text = f"{project.package} takes CUDA {project.cuda}, and torch was built with {torch.cuda}"
        yield Caution("extension-cuda", text, "choose another flavour with --cuda")
    if project.torch and not SpecifierSet(project.torch).contains(torch.version):
        text = f"{project.package} takes torch {project.torch}; the plan has {torch.version}"
        yield Caution("extension-torch", text, f"ask for it: 'torch{project.torch}'")
