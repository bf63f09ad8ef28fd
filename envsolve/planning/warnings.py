"""Warnings about a plan that is otherwise good."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.errors import IndexUnavailableError
from envsolve.facts.builds import ANY, Build
from envsolve.facts.evidence import Evidence
from envsolve.facts.hardware import toolkit_of
from envsolve.machine.model import Machine, Platform
from envsolve.packages.client import IndexClient
from envsolve.packages.settings import MERGED
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

_WITHOUT_TRITON = "torch itself runs; torch.compile and Triton kernels do not"
_WITHOUT_MATRIX = "torch itself runs; torch.compile and Triton kernels fail where they multiply matrices (tl.dot)"
_TRITON_RULES = ("triton", "triton-gpu", "triton-matrix", "triton-driver")
_TRITON_REMEDY = "for hand-written Triton kernels point TRITON_PTXAS_PATH to a ptxas of the driver's CUDA family"


def about_python(
    requires_python: str | None, of_lock: str | None, machines: Sequence[Machine], python: str
) -> Iterator[PlanWarning]:
    """Warn if the plan is not for a machine's own Python because the projects or an earlier lock do not allow it.

    ``requires_python`` is what projects and lock require together.
    """
    pythons = {m.python for m in machines if m.python} if admits_python(requires_python, python) else ()
    for own in sorted(python for python in pythons if not admits_python(requires_python, python)):
        who, required = ("project", requires_python) if admits_python(of_lock, own) else ("lock", of_lock)
        text = f"the {who} requires Python {required}: the plan is for {python}, not for the machine's {own}"
        yield PlanWarning("python-differs", text, "choose the Python with --python")


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
        text = f"the machines name Python {' and '.join(pythons)}; the plan is for {python}"
        yield PlanWarning("python-differs", text, "choose another with --python, or plan for each machine separately")
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
        text = f"the machine's {what} is not known; {value} is assumed"
        yield PlanWarning("platform-unknown", text, "name it with --platform or in the target")
    if libc_of(platform) is None and not (platform and platform.os == "windows"):
        needed = ".".join(map(str, max([ASSUMED_GLIBC, *_glibc_of(packages)])))
        text = f"the machine's libc is not known; glibc {needed} or newer is assumed"
        yield PlanWarning("libc-unknown", text, "check it there with: ldd --version")


def _glibc_of(packages: Sequence[PlannedPackage]) -> Iterator[tuple[int, int]]:
    """The versions of glibc that wheels need, by their file names and by what was measured."""
    for package in packages:
        tag = (package.filename or "").removesuffix(".whl").rpartition("-")[2]
        for kind, version in filter(None, (libc_needed(tag), libc_of(Platform(libc=package.libc)))):
            if kind == "glibc":
                yield version


def _about_gpus(machine: Machine) -> Iterator[PlanWarning]:
    if machine.gpus is None:
        text = "the machine's GPUs are not known, so no build could be judged for them"
        hint = "name them: --gpu, --target, or `envsolve detect -o FILE` on the machine"
        yield PlanWarning("gpu-unknown", text, hint)
    for other in dict.fromkeys(one for one in machine.accelerators or () if one.vendor not in VENDORS):
        text = f"{other.label}: GPUs of this vendor are not judged, so no build is known to use it"
        yield PlanWarning("accelerator-not-judged", text, None)
    for gpu in dict.fromkeys(gpu for gpu in machine.gpus or () if gpu.cc is None):
        text = f"the compute capability of {gpu.label} is not known, so no build could be judged for it"
        yield PlanWarning("gpu-unknown", text, "name it: --gpu 8.9 (nvidia-smi --query-gpu=compute_cap --format=csv)")


def _about_driver(machine: Machine, facts: Facts) -> Iterator[PlanWarning]:
    driver, branches = machine.driver, facts.drivers
    if driver is None or not (driver.version or driver.cuda):
        if machine.gpus:
            text = "the machine's driver is not known, so whether it runs this CUDA is not known"
            yield PlanWarning("driver-unknown", text, "name it: --driver VERSION (nvidia-smi shows it)")
        return
    newest = branches[-1].branch if branches else None
    if newest and driver.version and DriverVersion.parse(driver.version).branch > DriverVersion.parse(newest).branch:
        text = f"driver {driver.version} is newer than the newest branch that the facts know (R{newest})"
        hint = "newer drivers run older CUDA; whether it exists is not known"
        yield PlanWarning("driver-newer-than-facts", text, hint)
    if branch := overstated_cuda(driver, branches):
        text = f"driver {driver.version} supports CUDA {branch.cuda} of its own, not {driver.cuda}"
        hint = "a cuda-compat libcuda may report more; the driver was judged"
        yield PlanWarning("driver-cuda-overstated", text, hint)


def about_compat(machines: Sequence[Machine], facts: Facts) -> Iterator[PlanWarning]:
    """The effect of a cuda-compat ``libcuda`` that is first on the loader path (rule 8)."""
    for machine in machines:
        reason = compat_serves(machine, facts.forward)
        if reason is None:
            continue
        if reason.ok:
            text = f"{reason.text}, and is first on the loader path"
            yield PlanWarning("forward-compatibility", text, "keep it there: the plan relies on it")
        else:
            text = f"{reason.text}; the plan is made for the driver without it"
            yield PlanWarning(
                "compat-libcuda", text, "remove it from the loader path (LD_LIBRARY_PATH, /etc/ld.so.conf.d)"
            )


def about_systems(environments: Sequence[Environment]) -> Iterator[PlanWarning]:
    """A note that the files of a plan for several systems are those of the first."""
    first, *others = environments
    if others:
        names = " and ".join(other.system for other in others)
        text = f"the files are those of {first.system}; every version chosen is also published for {names}"
        yield PlanWarning(
            "several-systems", text, "one lock with the files of each system: --allow-groups -o pylock.toml"
        )


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
            rest = f"torch.compile uses the ptxas {own} inside torch and works" if own else without
            remedy = _TRITON_REMEDY if own else _torch_with_triton(family)
            yield PlanWarning("triton-limited", f"{reason.text}; {rest}", remedy)
    yield from _held_back(option, family, asked)


def _torch_with_triton(family: Family) -> str | None:
    """Another torch, if a requirement keeps the solver from one whose Triton works."""
    best = next((o for o in family.options("torch") if o.verdict.level.usable and o.verdict.triton), None)
    return f"{best.label} has a Triton that works here: relax the request" if best else None


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
                f"{although_newer(option, other)}, because Triton (torch.compile and many libraries use it) would not "
            )
            pin = triton_pin(other.build) or ""
            others = assemblers(pin, family.machines, family.facts, family.catalogue.compilers)
            how = "with a ptxas from another package" if next(others, None) else "without Triton"
            ways = [f"ask for torch=={other.build.version} to take it {how}"]
            if why.rule == "triton-driver" and (driver := driver_for(family, other)):
                ways.insert(0, f"{driver.text} and plan again")
            hint = f"nothing has to be done; for {other.build.package} {other.build.version}: {', or '.join(ways)}"
            yield PlanWarning("newer-torch-held-back", f"{text}work with that one: {why.text}", hint)
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
        text = f"{candidate.label} computes its dependencies when it is built; the plan uses those that it lists"
        hint = "--build-metadata lets pip compute them, which runs its code"
        if provider.builds and (why := provider.builds.failures.get(files[candidate.name] or "")):
            text, hint = f"{text}, since the build failed: {why}", "request its dependencies as well"
        yield PlanWarning("dependencies-guessed", text, hint)
    for candidate in candidates:
        if candidate.file and candidate.file.yanked is not None:
            text = f"{candidate.label} was withdrawn by its authors, and nothing else fits"
            yield PlanWarning("yanked", text, "choose another version")


def about_packages(packages: Sequence[PlannedPackage], solution: Solution, provider: Provider) -> Iterator[PlanWarning]:
    """Warnings about guessed dependencies, withdrawn files and similar facts of the packages."""
    for package in packages:
        if package.evidence == Evidence.INFERRED.value:
            text = f"{package.name} {package.version}: no public file lists this build; its existence is inferred"
            yield PlanWarning("build-inferred", text, "run again where its index can be reached")
    for package in packages:
        for owner in package.stands_in_for:
            who = " and ".join(dict.fromkeys(who_needs(owner, package.why)))
            text = f"{package.name} {package.version} stands in for {owner}, which {who} needs: it has the same modules"
            hint = f"install the plan from a lock: pip by itself adds {owner}, whose files overwrite those of the other"
            yield PlanWarning("stands-in", text, hint)
    yield from _about_candidates(packages, [chosen.candidate for chosen in solution.chosen.values()], provider)
    yield from about_age(solution.chosen, provider.family)
    variant = solution.variant
    for chosen in solution.chosen.values():
        option = chosen.candidate.option
        if option and variant and variant != "cpu" and option.build.cuda is None and option.build.package != "triton":
            text = f"{chosen.candidate.name} {option.version} has no CUDA build here; its CPU build works with torch"
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
            text = (
                f"{chosen.candidate.label} has no extra {' and no extra '.join(unknown)}; nothing is installed for it"
            )
            hint = f"its extras: {', '.join(sorted(known))}" if known else "write the name without [...]"
            yield PlanWarning("unknown-extra", text, hint)


def about_overrides(solution: Solution, provider: Provider) -> Iterator[PlanWarning]:
    """Requirements of packages that an override replaces: pip refuses the set, and a package may not work with it."""
    versions = {name: chosen.candidate.version for name, chosen in solution.chosen.items()}
    for chosen in solution.chosen.values():
        for wanted in provider.overridden(chosen.candidate, versions):
            version = versions[canonicalize_name(Requirement(wanted).name)]
            text = f"{chosen.candidate.label} requires {wanted}; the override of the project takes {version}"
            yield PlanWarning("override", text, "install the plan from a lock: pip by itself refuses such a set")


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
        whose = f"; {', '.join(askers)} needs them" if askers else ""
        text = f"{', '.join(others)} beside a torch for CUDA {major}{whose}"
        yield PlanWarning("mixed-cuda-majors", text, "leave out what requires it, or choose its variant: --cuda")
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
            text = f"{text} CUDA {optional}, which are not loaded beside a torch for CUDA {major}"
        elif own.torch and torch.version not in SpecifierSet(own.torch):
            text = f"{text} torch{own.torch}, which may not load beside torch {torch.version}"
        else:
            continue
        yield PlanWarning("kernels-not-loaded", f"{text}; the rest of it works", None)


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
    prove = "after installing it, verify it: envsolve verify --prefix DIR"
    names = unjudged(solution, family, compiled)
    if names:
        of_torch = ", and for which torch," if any(name in family.catalogue.family for name in names) else ""
        text = f"the GPU code in {', '.join(names)}{of_torch} is not known, so it was not judged"
        yield PlanWarning("not-judged", text, prove)
    if any(machine.gpus for machine in family.machines):
        options = [chosen.candidate.option for chosen in solution.chosen.values() if chosen.candidate.option]
        unread = [option.label for option in options if _code_unread(option)]
        if unread:
            yield PlanWarning("not-judged", f"the GPU code in {', '.join(unread)} is not known", prove)


def _code_unread(option: Option) -> bool:
    build = option.build
    return build.package != "torch" and build.cuda is not None and build.variant != ANY and build.code is None


def about_indexes(failures: Sequence[IndexUnavailableError], date: str | None) -> Iterator[PlanWarning]:
    """Indexes that the catalogue replaced."""
    for failure in failures:
        text = f"{failure.message}; its files are those of the catalogue of {date}, not confirmed by the index"
        yield PlanWarning("index-unreachable", text, failure.hint)


def about_places(
    packages: Sequence[PlannedPackage], client: IndexClient, family: Collection[str]
) -> Iterator[PlanWarning]:
    """Pages of ``--find-links`` that cannot be read, and packages that only a merge of indexes takes.

    The latter are of another index than the default one, which has them as well.
    """
    for failure in client.links.unread.values():
        yield PlanWarning("links-unreachable", f"{failure.message}; the plan has no file of it", failure.hint)
    if client.settings.strategy != MERGED:
        return
    own = client.without_login(client.settings.default)
    for package in packages:
        if package.index not in (None, "", own) and package.name not in family and client.listing(package.name, own):
            text = f"{package.name} {package.version} comes from {package.index}; the default index has it as well"
            yield PlanWarning("indexes-merged", text, "--index-strategy first-index takes it from the default index")
