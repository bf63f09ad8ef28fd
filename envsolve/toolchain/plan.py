"""The toolchain for the sources that a plan compiles (rule 10), and warnings about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.facts.builds import Build, SourceProject
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from envsolve.packages.requirements import Need
from envsolve.rules.nvidia.toolchain import (
    CompilerFacts,
    GccRange,
    arch_list,
    gcc_for,
    gcc_without_torch,
    knows_cards,
    nvcc_for,
    nvcc_without_torch,
    written_archs,
)
from envsolve.rules.verdict import Reason
from envsolve.solve.outcome import PlanWarning
from envsolve.toolchain.model import Compiled, Toolchain, nvcc_of, own_toolkit, reach_of
from envsolve.values import ComputeCapability, CudaVersion, DriverVersion

_NOT_ISOLATED = "without build isolation (--no-build-isolation), so that the build uses the packages of this plan"
_ARCH_LIST = "TORCH_CUDA_ARCH_LIST"


def toolchain_for(
    compiled: Sequence[Compiled],
    torch: Build | None,
    machines: Sequence[Machine],
    driver_cuda: str | None,
    catalogue: Catalogue,
) -> tuple[Toolchain, tuple[PlanWarning, ...]]:
    """The toolchain that compiles packages for all machines, and warnings about it.

    Args:
        compiled: What is compiled; empty if the toolchain is only to be named.
        torch: The build that it is compiled against; None for packages that need none.
        machines: Those that it is compiled on and for.
        driver_cuda: The newest CUDA that the drivers of all machines know in full; None if that is not known.
        catalogue: The facts.
    """
    facts = CompilerFacts.of(catalogue)
    cards = _cards(machines)
    cuda, knows = _cuda(torch, driver_cuda, cards, machines, catalogue)
    gcc = _with_standards(gcc_for(torch, facts) if torch else gcc_without_torch(cuda, facts), compiled, facts)
    archs, listed = arch_list(torch, cards, facts) if torch else (None, None)
    projects = [one.project for one in compiled if one.project]
    libraries = dict.fromkeys(name for project in projects for name in project.cuda_libraries)
    own = nvcc_of(cuda, tuple(libraries), machines, catalogue.compilers) if cuda else Toolchain()
    toolchain = replace(
        own,
        host_compiler=_host_compiler(gcc, machines),
        TORCH_CUDA_ARCH_LIST=archs,
        host_compilers=_in_words(gcc),
        compiles=tuple(one.name for one in compiled if one.when != "use"),
        compiles_at_use=tuple(one.name for one in compiled if one.when != "install"),
        build_requires=tuple(dict.fromkeys(line for one in compiled for line in one.build_requires)),
        gcc_min=gcc.first,
        gcc_max=gcc.last,
        environment=_variables(projects, archs, cards, facts),
        checks=tuple(_checks(cuda, knows, listed, driver_cuda)),
    )
    cautions = [*_about_compiling(toolchain), *_about_limits(cuda, knows, listed)]
    cautions += _about_host(toolchain, gcc, machines)
    cautions += _about_nvcc(toolchain, torch, machines, driver_cuda, catalogue)
    for one in compiled:
        if one.project is not None:
            cautions += _about_project(one.project, torch, cuda, cards, facts)
    return toolchain, tuple(cautions)


def build_needs(toolchain: Toolchain) -> tuple[Need, ...]:
    """Packages that the environment must hold before the sources are compiled, as packages of the plan.

    torch is already in the plan.
    """
    lines = [line for line in toolchain.build_requires if Requirement(line).name != "torch"]
    if toolchain.nvcc_from == "pip":
        lines += toolchain.nvcc_packages["pip"]
    for_what = ", ".join(dict.fromkeys((*toolchain.compiles, *toolchain.compiles_at_use)))
    return tuple(Need(Requirement(line), f"compiling {for_what}") for line in dict.fromkeys(lines))


def about_missing_tools(toolchain: Toolchain, planned: Mapping[str, str]) -> Iterator[PlanWarning]:
    """Build requirements of the sources for which no version is compatible with the rest of the plan.

    Args:
        toolchain: With what it needs.
        planned: Versions by name.
    """
    lacking = [str(n.requirement) for n in build_needs(toolchain) if not _is_met(n.requirement, planned)]
    if lacking and toolchain.compiles:
        text = (
            f"compiling {', '.join(toolchain.compiles)} requires "
            f"{', '.join(lacking)}, but no version of it fits the plan"
        )
        yield PlanWarning("build-requires", text, "add it to the requirements to see the conflict")


def where_it_runs(toolchain: Toolchain) -> dict[str, str]:
    """The variables by which programs that compile where they run find the toolkit."""
    home = toolchain.CUDA_HOME
    return {"CUDA_HOME": home, "PATH": f"{home}/bin:$PATH"} if home and toolchain.compiles_at_use else {}


def _is_met(requirement: Requirement, planned: Mapping[str, str]) -> bool:
    version = planned.get(canonicalize_name(requirement.name))
    # A planned pre-release was allowed by the request, so it also counts here.
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def _cuda(
    torch: Build | None,
    driver_cuda: str | None,
    cards: Sequence[ComputeCapability],
    machines: Sequence[Machine],
    catalogue: Catalogue,
) -> tuple[str | None, Reason]:
    """The CUDA version of the nvcc, and whether it is suitable."""
    facts = CompilerFacts.of(catalogue)
    if torch is not None:
        # torch.utils.cpp_extension refuses an nvcc of another CUDA major than torch's.
        return nvcc_for(torch, cards, facts)
    return nvcc_without_torch(
        driver_cuda, cards, lambda cuda: reach_of(str(CudaVersion.parse(cuda)), machines, catalogue.compilers), facts
    )


def _variables(
    projects: Sequence[SourceProject], archs: str | None, cards: Sequence[ComputeCapability], facts: CompilerFacts
) -> dict[str, str]:
    """Variables to set while sources are compiled, without ``CUDA_HOME``."""
    found = {_ARCH_LIST: archs} if archs else {}
    for project in projects:
        # Variables of several projects are merged: all of them are compiled in one environment.
        found |= project.variables
        own = written_archs(project, cards, facts) if project.arch_variable not in (None, _ARCH_LIST) else None
        if own and project.arch_variable:
            found[project.arch_variable] = own
    return found


def _checks(cuda: str | None, knows: Reason, listed: Reason | None, driver_cuda: str | None) -> Iterator[str]:
    """Facts that were confirmed."""
    if knows.ok:
        yield knows.text
    if listed is not None and listed.ok:
        yield listed.text
    if listed is not None and listed.ok and cuda and driver_cuda:
        if CudaVersion.parse(cuda) <= CudaVersion.parse(driver_cuda):
            yield f"the driver fully supports CUDA {driver_cuda}, so it also compiles PTX of nvcc {cuda}"
        else:
            yield f"the build generates no PTX, because the driver cannot compile PTX newer than CUDA {driver_cuda}"


def _cards(machines: Sequence[Machine]) -> list[ComputeCapability]:
    return sorted({gpu.cc for machine in machines for gpu in machine.gpus or () if gpu.cc is not None})


def _with_standards(gcc: GccRange, compiled: Sequence[Compiled], facts: CompilerFacts) -> GccRange:
    """The range less the compilers that are too old for the C++ of the sources themselves."""
    for one in compiled:
        standard = facts.standards.get(one.project.cxx_standard or 0) if one.project else None
        if standard is not None and one.project is not None:
            text = f"{one.name} is written in C++{standard.standard}: gcc {standard.gcc_min} or newer"
            reason = Reason("toolchain", True, text, one.project.evidence.value, one.project.source)
            gcc = gcc.from_major(standard.gcc_min, reason)
    return gcc


def _host_compiler(gcc: GccRange, machines: Sequence[Machine]) -> str | None:
    """The machines' own gcc where it is within the limits, otherwise the one nearest to torch's own."""
    if gcc.empty:
        return None
    # A machine may have several gcc: the newest that fits.
    own = max((major for major in _gccs(machines) if gcc.holds(major)), default=gcc.preferred or gcc.last)
    return f"gcc {own}" if own is not None else None


def _gccs(machines: Sequence[Machine]) -> Iterator[int]:
    for machine in machines:
        for compiler in machine.host_compilers or ():
            if compiler.kind == "gcc" and compiler.version:
                yield DriverVersion.parse(compiler.version)[0]


def _in_words(gcc: GccRange) -> str | None:
    if gcc.first is not None and gcc.last is not None:
        return f"gcc {gcc.first} to {gcc.last}"
    if gcc.last is not None:
        return f"gcc {gcc.last} or older"
    return f"gcc {gcc.first} or newer" if gcc.first is not None else None


def _about_compiling(toolchain: Toolchain) -> Iterator[PlanWarning]:
    parts = [f"nvcc {toolchain.nvcc}"] if toolchain.nvcc else []
    parts += [toolchain.host_compilers] if toolchain.host_compilers else []
    if toolchain.compiles:
        set_to = [f"{name}={value}" for name, value in toolchain.environment.items()]
        takes = ", ".join([*parts, *set_to])
        text = f"{', '.join(toolchain.compiles)} will be compiled from source"
        text += f"; this requires {takes}" if takes else ""
        them = "it" if len(toolchain.compiles) == 1 else "them"
        yield PlanWarning(
            "compiles",
            text,
            f"`envsolve install` compiles {them}; if you use another installer, build {them} {_NOT_ISOLATED}",
        )
    later = [name for name in toolchain.compiles_at_use if name not in toolchain.compiles]
    if later:
        text = (
            f"{', '.join(later)} compiles CUDA code when it is first used; this requires {', '.join(parts)} on the "
            "machine that runs it"
        )
        yield PlanWarning("compiles-at-use", text, "also install a g++ of such a version on that machine")


def _about_limits(cuda: str | None, knows: Reason, listed: Reason | None) -> Iterator[PlanWarning]:
    """Limits of the nvcc on the GPUs, and unknown facts about it."""
    if knows.ok is False:
        yield PlanWarning("toolchain", knows.text)
    elif knows.ok is None and cuda is None:
        yield PlanWarning("toolchain", knows.text, "give the driver with --driver, --target or --machine")
    if listed is not None and not listed.ok:
        yield PlanWarning(
            "toolchain", listed.text, "give the GPUs with --gpu, --target or --machine" if listed.ok is None else None
        )


def _about_host(toolchain: Toolchain, gcc: GccRange, machines: Sequence[Machine]) -> Iterator[PlanWarning]:
    """Host compilers on the machines that are not suitable."""
    bounds = "; ".join(reason.text for reason in gcc.reasons)
    if gcc.empty:
        yield PlanWarning("host-compiler", f"no gcc version can compile this: {bounds}")
        return
    majors = set(_gccs(machines))
    # Without a description of the compilers nothing is known, and a warning would be wrong more often than right.
    if majors and not any(gcc.holds(major) for major in majors):
        have = " and ".join(f"gcc {major}" for major in sorted(majors))
        yield PlanWarning(
            "host-compiler",
            f"the machine has {have}; {bounds}",
            f"install {toolchain.host_compiler} and set CC and CXX to it",
        )


def _about_nvcc(
    toolchain: Toolchain,
    torch: Build | None,
    machines: Sequence[Machine],
    driver_cuda: str | None,
    catalogue: Catalogue,
) -> Iterator[PlanWarning]:
    """Warnings about another nvcc on the machines, or none that is available."""
    wanted = toolchain.nvcc
    toolkits = [t for machine in machines for t in machine.toolkits or () if t.nvcc and t.version]
    if wanted is None:
        return
    have = ", ".join(f"{t.version} in {t.path}" if t.path else str(t.version) for t in toolkits)
    why = f"torch was built with CUDA {wanted}" if torch else f"the driver supports CUDA {wanted}"
    if toolchain.nvcc_from is None:
        text = f"neither this machine nor the default index has nvcc {wanted}" + (
            f"; the machine has nvcc {have}, but {why}" if have else ""
        )
        ways = [*_other_variants(torch, machines, driver_cuda, catalogue)] if torch else []
        ways += [f"{toolchain.get_nvcc}, then run the same command again"] if toolchain.get_nvcc else []
        brought = toolchain.compiles and "conda" in toolchain.nvcc_packages
        ways += ["install envsolve[conda]; `envsolve install` then installs nvcc from conda-forge"] if brought else []
        yield PlanWarning("nvcc", text, "; or: ".join(ways) or None)
    elif have and toolchain.nvcc_from == "pip" and own_toolkit(wanted, machines) is None:
        text = f"the machine has nvcc {have}; {why}"
        yield PlanWarning("nvcc", text, f"the plan has its own nvcc {wanted}; set CUDA_HOME to its directory")


def _other_variants(
    torch: Build, machines: Sequence[Machine], driver_cuda: str | None, catalogue: Catalogue
) -> Iterator[str]:
    """Variants of the same torch whose nvcc is available and whose CUDA family the drivers run."""
    told = {"machine": "for which the machine has an nvcc", "pip": "for which the default index has an nvcc"}
    same = (b for b in catalogue.builds("torch") if b.version == torch.version and b.platform == torch.platform)
    for variant, cuda in dict.fromkeys((b.variant, b.cuda) for b in same):
        # Rule 1: a driver runs every minor of its own CUDA major, and none of a newer major.
        if cuda is None or driver_cuda is None or CudaVersion.parse(cuda).major > CudaVersion.parse(driver_cuda).major:
            continue
        origin = nvcc_of(cuda, (), machines, catalogue.compilers).nvcc_from
        if origin is not None and knows_cards(cuda, _cards(machines), CompilerFacts.of(catalogue)).ok:
            yield f"--cuda {variant}, {told[origin]}"


def _about_project(
    project: SourceProject,
    torch: Build | None,
    cuda: str | None,
    cards: Sequence[ComputeCapability],
    facts: CompilerFacts,
) -> Iterator[PlanWarning]:
    """Requirements of the project itself that the plan does not meet."""
    own = project.arch_variable
    if own is None and torch is not None and "nvcc" in project.tools:
        text = f"{project.package} ignores {_ARCH_LIST} and decides itself for which GPUs it is compiled"
        yield PlanWarning("extension-archs", text)
    elif own not in (None, _ARCH_LIST) and cards and written_archs(project, cards, facts) is None:
        listed = ", ".join(map(str, cards))
        takes = ", ".join(project.archs)
        text = (
            f"{project.package} reads from {own} for which GPUs it is compiled, and this variable supports {takes} "
            f"but not {listed}"
        )
        yield PlanWarning("extension-archs", text)
    if project.min_cc is not None:
        too_old = [str(cc) for cc in cards if cc < ComputeCapability.parse(project.min_cc)]
        if too_old:
            text = (
                f"{project.package} can be compiled only for compute capability {project.min_cc} and newer, not for "
                f"{', '.join(too_old)}"
            )
            yield PlanWarning("extension-gpu", text)
    if project.cuda_option is not None:
        text = (
            f"{project.package} is compiled only for the CPU if no GPU is visible during the build, for example in a "
            "Docker build"
        )
        by_hand = f"pip install --config-settings=--build-option={project.cuda_option}"
        way = f"build it on a machine with a GPU, or force GPU support: {by_hand}"
        yield PlanWarning("extension-sees-gpu", text, way)
    if torch is None:
        if wheels := project.wheel_packages.get(str(CudaVersion.parse(cuda).major)) if cuda else None:
            text = f"the same project is also published as wheels under the name {wheels}"
            yield PlanWarning("ready-wheel-elsewhere", text, f"request {wheels} to compile nothing")
        return
    if project.cuda and torch.cuda and not SpecifierSet(project.cuda).contains(torch.cuda):
        text = f"{project.package} requires CUDA {project.cuda}, but torch was built with {torch.cuda}"
        yield PlanWarning("extension-cuda", text, "choose another variant with --cuda")
    if project.torch and not SpecifierSet(project.torch).contains(torch.version):
        text = f"{project.package} requires torch {project.torch}; the plan has {torch.version}"
        yield PlanWarning("extension-torch", text, f"request 'torch{project.torch}'")
