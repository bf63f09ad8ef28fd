"""Warnings about a plan that is otherwise good, and about its machines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.facts.builds import ANY, Build
from envsolve.facts.evidence import Evidence
from envsolve.facts.hardware import toolkit_of
from envsolve.machine.model import Machine, Platform
from envsolve.planning.pinning import who_needs
from envsolve.planning.rounds import Resolved, assemblers
from envsolve.rules.judge import VENDORS
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON, arch_asked, cuda_suffix, is_gpu_package, triton_pin
from envsolve.rules.nvidia.driver import compat_serves, overstated_cuda
from envsolve.rules.platform import ASSUMED_GLIBC, Environment, admits_python, assumed, libc_needed, libc_of
from envsolve.solve.claims import about_age, about_borrowed, runtime_libraries
from envsolve.solve.family import Family, Option
from envsolve.solve.limits import although_newer
from envsolve.solve.needs import Candidate, only_for
from envsolve.solve.outcome import PlannedPackage, PlanWarning
from envsolve.solve.provider import Provider
from envsolve.solve.resolver import Chosen, Solution
from envsolve.toolchain.model import Compiled
from envsolve.values import CudaVersion, DriverVersion

_WITHOUT_TRITON = "torch itself runs, but torch.compile and Triton kernels do not"
_WITHOUT_MATRIX = "torch itself runs, but torch.compile and Triton kernels fail when they multiply matrices (tl.dot)"
_TRITON_RULES = ("triton", "triton-gpu", "triton-matrix", "triton-driver")
_TRITON_REMEDY = "for your own Triton kernels, set TRITON_PTXAS_PATH to a ptxas of the driver's CUDA family"


def about_python(
    requires_python: str | None, of_lock: str | None, machines: Sequence[Machine], python: str
) -> Iterator[PlanWarning]:
    """Warn if the plan is not for a machine's own Python because the projects or an earlier lock do not allow it.

    ``requires_python`` is what projects and lock require together.
    """
    pythons = {m.python for m in machines if m.python} if admits_python(requires_python, python) else ()
    for own in sorted(python for python in pythons if not admits_python(requires_python, python)):
        who, required = ("project", requires_python) if admits_python(of_lock, own) else ("lock", of_lock)
        text = f"the {who} requires Python {required}, so the plan is for Python {python}, not for the machine's {own}"
        yield PlanWarning("python-differs", text, "to choose the Python: --python")


def about_machines(
    machines: Sequence[Machine], python: str, facts: Facts, packages: Sequence[PlannedPackage] = ()
) -> Iterator[PlanWarning]:
    """Facts of the machines that decide and are not known, or that the plan cannot all follow.

    Args:
        machines: The machines of the plan.
        python: The Python of the plan.
        facts: For the drivers.
        packages: Those of the plan, whose wheels say which libc they need.
    """
    pythons = sorted({machine.python for machine in machines if machine.python})
    if len(pythons) > 1:
        text = f"the machines have Python {' and '.join(pythons)}; the plan is for {python}"
        yield PlanWarning("python-differs", text, "choose with --python, or plan for each machine separately")
    for machine in machines:
        yield from about_platform(machine.platform, packages)
        yield from _about_gpus(machine)
        yield from _about_driver(machine, facts)


def about_platform(platform: Platform | None, packages: Sequence[PlannedPackage]) -> Iterator[PlanWarning]:
    """The parts of its system that a machine leaves open, and what is assumed: the libc that the packages need."""
    if platform is None or platform.os is None or platform.arch is None:
        named = assumed(platform)
        # "Windows 11" says all but the processor.
        known = platform and platform.os
        what, value = ("processor", named.arch) if known else ("platform", f"{named.os}-{named.arch}")
        text = f"the machine's {what} is not known; the plan assumes {value}"
        yield PlanWarning("platform-unknown", text, "give it with --platform or in --target")
    if libc_of(platform) is None and not (platform and platform.os == "windows"):
        needed = ".".join(map(str, max([ASSUMED_GLIBC, *_glibc_of(packages)])))
        text = f"the machine's libc is not known; the plan assumes glibc {needed} or newer"
        yield PlanWarning("libc-unknown", text, "check it on the machine with: ldd --version")


def _glibc_of(packages: Sequence[PlannedPackage]) -> Iterator[tuple[int, int]]:
    """The versions of glibc that wheels need, by their file names and by what was measured."""
    for package in packages:
        tag = (package.filename or "").removesuffix(".whl").rpartition("-")[2]
        for kind, version in filter(None, (libc_needed(tag), libc_of(Platform(libc=package.libc)))):
            if kind == "glibc":
                yield version


def _about_gpus(machine: Machine) -> Iterator[PlanWarning]:
    if machine.gpus is None:
        text = "the machine's GPUs are not known, so it is not known whether the builds run on them"
        hint = (
            "give them with --gpu or --target, or run `envsolve detect -o FILE` on the machine and use --machine FILE"
        )
        yield PlanWarning("gpu-unknown", text, hint)
    for other in dict.fromkeys(one for one in machine.accelerators or () if one.vendor not in VENDORS):
        text = f"{other.label}: envsolve has no rules for GPUs of this vendor, so it is not known which builds use it"
        yield PlanWarning("accelerator-not-judged", text, None)
    for gpu in dict.fromkeys(gpu for gpu in machine.gpus or () if gpu.cc is None):
        text = f"the compute capability of {gpu.label} is not known, so it is not known whether the builds run on it"
        yield PlanWarning(
            "gpu-unknown", text, "give it: --gpu 8.9 (see nvidia-smi --query-gpu=compute_cap --format=csv)"
        )


def _about_driver(machine: Machine, facts: Facts) -> Iterator[PlanWarning]:
    driver, branches = machine.driver, facts.drivers
    if driver is None or not (driver.version or driver.cuda):
        if machine.gpus:
            text = "the machine's driver is not known, so it is not known whether it runs this CUDA"
            yield PlanWarning("driver-unknown", text, "give it: --driver VERSION (nvidia-smi shows the version)")
        return
    newest = branches[-1].branch if branches else None
    if newest and driver.version and DriverVersion.parse(driver.version).branch > DriverVersion.parse(newest).branch:
        text = f"driver {driver.version} is newer than the newest branch in the catalogue (R{newest})"
        hint = "nothing to do if the driver exists: newer drivers run builds for older CUDA versions"
        yield PlanWarning("driver-newer-than-facts", text, hint)
    if branch := overstated_cuda(driver, branches):
        text = f"driver {driver.version} itself supports CUDA {branch.cuda}, not {driver.cuda}"
        hint = f"the plan is made for CUDA {branch.cuda}; a cuda-compat libcuda may report the higher version"
        yield PlanWarning("driver-cuda-overstated", text, hint)


def about_compat(machines: Sequence[Machine], facts: Facts) -> Iterator[PlanWarning]:
    """The effect of a cuda-compat ``libcuda`` that is first on the loader path (rule 8)."""
    for machine in machines:
        reason = compat_serves(machine, facts.forward)
        if reason is None:
            continue
        if reason.ok:
            text = f"{reason.text}, and the loader finds it first"
            yield PlanWarning("forward-compatibility", text, "keep it first on the loader path: the plan relies on it")
        else:
            text = f"{reason.text}; the plan is made for the driver without this library"
            yield PlanWarning(
                "compat-libcuda", text, "remove it from the loader path (LD_LIBRARY_PATH, /etc/ld.so.conf.d)"
            )


def about_systems(environments: Sequence[Environment]) -> Iterator[PlanWarning]:
    """A note that the files of a plan for several systems are those of the first."""
    first, *others = environments
    if others:
        names = " and ".join(other.system for other in others)
        text = f"the listed files are for {first.system}; all chosen versions are also published for {names}"
        yield PlanWarning("several-systems", text, "for one lock for all systems: --allow-groups -o pylock.toml")


def about_torch(solution: Solution, family: Family, asked: SpecifierSet) -> Iterator[PlanWarning]:
    """Limits of the chosen torch, and what a newer one would need, if the request takes that one."""
    torch, triton = solution.chosen.get("torch"), solution.chosen.get(TRITON)
    option = torch.candidate.option if torch else None
    if option is None:
        return
    beside = triton.candidate.option if triton else None
    # Some builds of torch pin no Triton, or none for this Python; then it is another one that was asked for.
    if beside and triton_pin(option.build) != beside.build.version and any(m.gpus for m in family.machines):
        yield from (PlanWarning("triton-limited", f"{r.text}; {_WITHOUT_TRITON}") for r in beside.verdict.failures)
    for reason in option.verdict.reasons:
        if reason.rule in _TRITON_RULES and reason.ok is False:
            # Torch's own ptxas, of an older CUDA, helps if only the driver is too old for Triton's.
            helps = reason.rule == "triton-driver" and _own_ptxas_serves(option, family)
            own = option.build.own_ptxas if helps else None
            without = _WITHOUT_MATRIX if reason.rule == "triton-matrix" else _WITHOUT_TRITON
            rest = f"torch.compile works, because it uses the ptxas {own} inside torch" if own else without
            remedy = _TRITON_REMEDY if own else _torch_with_triton(family)
            yield PlanWarning("triton-limited", f"{reason.text}; {rest}", remedy)
    yield from _held_back(option, family, asked)


def _torch_with_triton(family: Family) -> str | None:
    """Another torch, if a requirement keeps the solver from one whose Triton works."""
    best = next((o for o in family.options("torch") if o.verdict.level.usable and o.verdict.triton), None)
    return f"relax the requirements to allow {best.label}, whose Triton works here" if best else None


def _own_ptxas_serves(option: Option, family: Family) -> bool:
    """Whether the ptxas inside torch knows the name under which the paired Triton asks for every GPU."""
    own, release = option.build.own_ptxas, family.facts.tritons.get(triton_pin(option.build) or "")
    toolkit = toolkit_of(own, family.facts.toolkits)
    cards = [gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc]
    if toolkit is None or release is None:
        return False
    return all(arch_asked(release, cc) in toolkit.archs for cc in cards)


def _held_back(option: Option, family: Family, asked: SpecifierSet) -> Iterator[PlanWarning]:
    """A note that a newer torch would run here, but its Triton would not."""
    if not option.verdict.triton:
        return
    for other in family.judged("torch"):
        if other.version <= option.version:
            return
        if other.verdict.level.usable and other.verdict.triton is False and other.matches(asked):
            from envsolve.advice.changes import driver_for

            why = next(r for r in other.verdict.reasons if r.rule in _TRITON_RULES)
            text = (
                f"{although_newer(option, other)}, because the Triton of the newer torch would not work here "
                "(torch.compile and many libraries use it): "
            )
            pin = triton_pin(other.build) or ""
            others = assemblers(pin, family.machines, family.facts, family.catalogue.compilers)
            how = "with a ptxas from another package" if next(others, None) else "without Triton"
            ways = [f"request torch=={other.build.version} to install it {how}"]
            if why.rule == "triton-driver" and (driver := driver_for(family, other)):
                ways.insert(0, f"{driver.text} and plan again")
            hint = (
                f"you do not have to do anything; to get {other.build.package} {other.build.version}: "
                f"{', or '.join(ways)}"
            )
            yield PlanWarning("newer-torch-held-back", f"{text}{why.text}", hint)
            return


def _about_candidates(
    packages: Sequence[PlannedPackage], candidates: Sequence[Candidate], provider: Provider
) -> Iterator[PlanWarning]:
    # The PKG-INFO of an sdist that stands for a wheel is that wheel's METADATA.
    trees = {package.name for package in packages if package.tree or package.wheels_from}
    files = {package.name: package.filename for package in packages}
    for candidate in candidates:
        if candidate.name in trees or provider.metadata(candidate).exact:
            continue
        text = (
            f"{candidate.label} determines its dependencies only when it is built; the plan uses the ones that it lists"
        )
        hint = "with --build-metadata, pip builds the package to read them; this runs code of the package"
        if provider.builds and (why := provider.builds.failures.get(files[candidate.name] or "")):
            text, hint = f"{text}, because the build failed: {why}", "add its dependencies to the requirements yourself"
        yield PlanWarning("dependencies-guessed", text, hint)
    for candidate in candidates:
        if candidate.file and candidate.file.yanked is not None:
            text = f"{candidate.label} was withdrawn (yanked) by its authors, but nothing else fits"
            yield PlanWarning("yanked", text, "choose another version")


def about_packages(packages: Sequence[PlannedPackage], solution: Solution, provider: Provider) -> Iterator[PlanWarning]:
    """Warnings about guessed dependencies, withdrawn files and similar facts of the packages."""
    for package in packages:
        if package.evidence == Evidence.INFERRED.value:
            text = (
                f"{package.name} {package.version}: no public list has this build; the catalogue assumes that it exists"
            )
            yield PlanWarning("build-inferred", text, "plan again on a machine that can reach its index")
    for package in packages:
        for owner in package.stands_in_for:
            who = " and ".join(dict.fromkeys(who_needs(owner, package.why)))
            text = f"{package.name} {package.version} replaces {owner} (required by {who}): both have the same modules"
            hint = (
                f"install the plan from a lock; otherwise pip also installs {owner} and overwrites files of "
                f"{package.name}"
            )
            yield PlanWarning("stands-in", text, hint)
    yield from _about_candidates(packages, [chosen.candidate for chosen in solution.chosen.values()], provider)
    yield from about_age(solution.chosen, provider.family)
    variant = solution.variant
    for chosen in solution.chosen.values():
        option = chosen.candidate.option
        if option and variant and variant != "cpu" and option.build.cuda is None and option.build.package != "triton":
            text = (
                f"{chosen.candidate.name} {option.version} has no CUDA build here; the plan has its CPU build, which "
                "works with torch"
            )
            yield PlanWarning("cpu-companion", text, None)


def about_extras(solution: Solution, provider: Provider) -> Iterator[PlanWarning]:
    """Extras that are requested and that the chosen version does not have: pip and uv also only warn."""
    for chosen in solution.chosen.values():
        metadata = provider.metadata(chosen.candidate) if chosen.extras else None
        if metadata is None or not metadata.exact:
            continue
        # The catalogue holds no Provides-Extra: of its builds only the requirement lines name the extras.
        named = (*metadata.provides_extra, *filter(None, map(only_for, metadata.requires_dist)))
        known = {str(canonicalize_name(extra)) for extra in named}
        if unknown := [extra for extra in chosen.extras if extra not in known]:
            text = f"{chosen.candidate.label} has no extra {' and no extra '.join(unknown)}, so the extra adds nothing"
            hint = f"its extras: {', '.join(sorted(known))}" if known else "write the package name without [...]"
            yield PlanWarning("unknown-extra", text, hint)


def about_overrides(solution: Solution, provider: Provider) -> Iterator[PlanWarning]:
    """Requirements of packages that an override replaces: pip refuses the set, and a package may not work with it."""
    versions = {name: chosen.candidate.version for name, chosen in solution.chosen.items()}
    for chosen in solution.chosen.values():
        for wanted in provider.overridden(chosen.candidate, versions):
            version = versions[canonicalize_name(Requirement(wanted).name)]
            text = f"{chosen.candidate.label} requires {wanted}, but the project's override sets version {version}"
            yield PlanWarning("override", text, "install the plan from a lock: pip itself would refuse these versions")


def about_runtime(solution: Solution, family: Family) -> Iterator[PlanWarning]:
    """Libraries of the CUDA runtime that are missing, or of another major than torch's: two clash (rule 9)."""
    yield from about_borrowed(solution.chosen, family)
    torch = solution.chosen.get("torch")
    option = torch.candidate.option if torch else None
    if option is None or option.build.cuda is None:
        return
    major = CudaVersion.parse(option.build.cuda).major
    others = [name for name, other in runtime_libraries(solution.chosen, family).items() if other != major]
    if others:
        askers = [n for n, chosen in solution.chosen.items() if n not in others and {*chosen.requires} & {*others}]
        whose = f"; required by {', '.join(askers)}" if askers else ""
        text = f"the plan has {', '.join(others)}, although torch is built for CUDA {major}{whose}"
        yield PlanWarning("mixed-cuda-majors", text, "leave out what requires it, or choose its variant with --cuda")
    yield from _about_kernels(solution, option.build)


def _about_kernels(solution: Solution, torch: Build) -> Iterator[PlanWarning]:
    """Packages for every variant whose optional kernels are for another CUDA major or another torch."""
    for name, chosen in solution.chosen.items():
        own = chosen.candidate.option.build if chosen.candidate.option else None
        if own is None or own.variant != ANY or not own.cuda_version or not torch.cuda_version:
            continue
        optional, major = own.cuda_version.major, torch.cuda_version.major
        text = f"{name} {own.version} has optional kernels for"
        if optional != major:
            text = f"{text} CUDA {optional}, which cannot be loaded with a torch for CUDA {major}"
        elif own.torch and torch.version not in SpecifierSet(own.torch):
            text = f"{text} torch{own.torch}, which may fail to load with torch {torch.version}"
        else:
            continue
        yield PlanWarning("kernels-not-loaded", f"{text}; the rest of the package works", None)


def unjudged(solution: Solution, family: Family, compiled: Collection[str]) -> list[str]:
    """The names of packages with GPU code that the facts do not cover; what is compiled for the GPUs has none yet."""
    members = family.catalogue.family
    judged = {name for name, chosen in solution.chosen.items() if chosen.candidate.option is not None}
    # Those whose code is compiled, when they are installed or used, or is in other packages that are judged.
    held = {name for name, one in members.items() if one.code_in is not None and judged.issuperset(one.code_in)}
    return [
        name
        for name, chosen in solution.chosen.items()
        if (name in members or is_gpu_package(name) or _loads_cuda(name, chosen))
        and name not in judged | held | {*family.documented}
        and name not in compiled
    ]


def _loads_cuda(name: str, chosen: Chosen) -> bool:
    """Whether a wheel has machine code, and requires libraries of CUDA that it can only have for this code."""
    file = chosen.candidate.file
    if file is None or not file.filename.endswith(".whl") or file.filename.endswith("-any.whl") or cuda_suffix(name):
        return False
    return any(map(cuda_suffix, chosen.requires))


def asks_for_unjudged(found: Resolved, compiled: Sequence[Compiled]) -> bool:
    """Whether the request names a package that has GPU code, by its name or its requirements, which was never read."""
    requested = {canonicalize_name(need.requirement.name) for need in found.needs}
    files = {package.name: package.filename or "" for package in found.pinned.packages}
    names = unjudged(found.solution, found.family, {one.name for one in compiled})
    chosen = found.solution.chosen.items()
    unread = [name for name, one in chosen if one.candidate.option and _code_unread(one.candidate.option)]
    return any(name in requested and not files[name].endswith("-any.whl") for name in (*names, *unread))


def about_unjudged(solution: Solution, family: Family, compiled: Collection[str]) -> Iterator[PlanWarning]:
    """Packages with GPU code that was not judged, because the facts do not cover it or say too little."""
    prove = "verify the environment after the installation: envsolve verify --prefix DIR"
    names = unjudged(solution, family, compiled)
    if names:
        of_torch = (
            " (and for which torch it was compiled)" if any(name in family.catalogue.family for name in names) else ""
        )
        text = f"it is not known which GPU code {', '.join(names)} contains{of_torch}, or whether it runs here"
        yield PlanWarning("not-judged", text, prove)
    if any(machine.gpus for machine in family.machines):
        options = [chosen.candidate.option for chosen in solution.chosen.values() if chosen.candidate.option]
        unread = [option.label for option in options if _code_unread(option)]
        if unread:
            yield PlanWarning("not-judged", f"it is not known which GPU code {', '.join(unread)} contains", prove)


def _code_unread(option: Option) -> bool:
    build = option.build
    return build.package != "torch" and build.cuda is not None and build.variant != ANY and build.code is None
