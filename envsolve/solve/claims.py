"""The claims of a candidate, and warnings about what packages lack beside each other.

A claim is to something of which an environment has only one, so that its holders exclude each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from resolvelib.structs import build_iter_view

from envsolve.errors import IndexUnavailableError
from envsolve.facts.builds import ANY, Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import GpuPart
from envsolve.facts.evidence import made_for as wheel_says
from envsolve.facts.files import WHEEL_NAMES
from envsolve.machine.model import Machine
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON, cuda_suffix
from envsolve.rules.nvidia.driver import driver_runs, lifted
from envsolve.rules.platform import assumed
from envsolve.solve.family import Family
from envsolve.solve.needs import (
    CUDA_MAJOR,
    AnyCandidate,
    AnyNeed,
    Candidate,
    ClaimNeed,
    LimitNeed,
    PackageNeed,
    VariantNeed,
    only_for,
    parsed,
)
from envsolve.solve.outcome import PlannedPackage, PlanWarning
from envsolve.values import ComputeCapability

_NO_PART = "no build with GPU support runs on these machines"
_MADE_FOR_IT = "what is made for it"  # holds the claim to a module within the limits of a package

if TYPE_CHECKING:
    from envsolve.solve.provider import Provider
    from envsolve.solve.resolver import Chosen


def _files(owner: str) -> str:
    return f"the files of {owner}"


def claims_of(candidate: Candidate, family: Family) -> Iterator[ClaimNeed]:
    """The claims of a candidate: the files that it installs, a CUDA major, and the ABI of a module beside it."""
    name, version = candidate.name, candidate.version
    for owner in dict.fromkeys(family.files_of(name, version)):
        yield ClaimNeed(name, _files(owner), f"installs {_files(owner)}")
    build, suffix = candidate.option.build if candidate.option else None, cuda_suffix(name)
    if name == "torch" and build and build.cuda_version:
        major = build.cuda_version.major
        yield ClaimNeed(str(major), CUDA_MAJOR, f"is built for CUDA {major}")
    # cuda-toolkit is a meta package whose version is the one of CUDA; all others have the major in their names.
    elif name == "cuda-toolkit" or (suffix and suffix[0] in family.runtime):
        major = suffix[1] if suffix else version.major
        yield ClaimNeed(str(major), CUDA_MAJOR, f"is a library of CUDA {major}")
    # onnxruntime-gpu and CuPy load libraries that they do not require, so only this claim keeps another major out.
    elif build and (borrowed := family.borrows(build)):
        yield ClaimNeed(str(borrowed), CUDA_MAJOR, f"loads the libraries of CUDA {borrowed}")
    against = family.catalogue.compiled_against
    for one in (one for one in against if one.package == name):
        limit = f"{one.module}{one.module_versions}"
        if SpecifierSet(one.versions).contains(version, prereleases=True):
            yield ClaimNeed(_MADE_FOR_IT, limit, f"is built for {limit}")
    # Two claims on the same key with different holders exclude each other: that is how "compiled against NumPy 1"
    # becomes an ordinary conflict for the solver, with a chain of reasons.
    for older in dict.fromkeys(one.module_versions for one in against if one.module == name):
        if not SpecifierSet(older).contains(version, prereleases=True):
            yield others_than(f"{name}{older}")


def limits_among(claims: Iterable[tuple[ClaimNeed, Candidate]]) -> Iterator[LimitNeed]:
    """The limits on modules of an answer that packages beside them are made for, and that the modules do not meet."""
    together: dict[str, dict[str, Candidate]] = {}
    for claim, candidate in claims:
        together.setdefault(claim.key, {}).setdefault(claim.holder, candidate)
    for key, holders in together.items():
        if _MADE_FOR_IT in holders and len(holders) > 1 and (module := parsed(key)):
            name = canonicalize_name(module.name)
            yield LimitNeed(name, None, module.specifier, None, key, holders[_MADE_FOR_IT].label)


def others_than(limit: str) -> ClaimNeed:
    """The claim that a module is not within limits that packages are made for."""
    return ClaimNeed("others", limit, f"does not satisfy {limit}")


def made_for(name: str, url: str, family: Family) -> Iterator[AnyNeed]:
    """The torch, and its variant, that the name or the directory of a wheel says that it was compiled for.

    Args:
        name: Of the package, for messages.
        url: Of a wheel that no index serves: of those that do, the metadata and the catalogue say it.
        family: The variants that there are.
    """
    made = wheel_says(url, family.catalogue.records(WHEEL_NAMES))
    if made.torch is None:
        return
    origin = f"{name} {url.rpartition('/')[2].split('-', 2)[1]}"
    yield PackageNeed("torch", None, SpecifierSet(made.torch), None, f"torch{made.torch}", unquote(origin))
    if made.variant:
        yield VariantNeed(frozenset({made.variant}))
    elif made.cuda_major:
        yield VariantNeed(family.variants_of(made.cuda_major))


def settled(
    roots: Sequence[AnyNeed],
    chosen: Mapping[str, AnyCandidate],
    family: Family,
    edges: Iterable[tuple[str | None, AnyNeed]],
) -> Iterator[AnyNeed]:
    """Claims that packages of a request have in all their versions.

    An old release, from before a package required what now clashes, avoids the clash, and nobody wants it.
    """
    against = family.catalogue.compiled_against
    modules = {one.module for one in against}
    # What goes with every newer module clashes with an old one only, and an old release is what goes with that.
    bending = {one.package for one in against if all(s.operator[0] == ">" for s in SpecifierSet(one.module_versions))}
    # An older transformers needs an older huggingface-hub: held at a new one, it would be years older than it must be.
    bending |= {need.name for parent, need in edges if parent in bending and isinstance(need, PackageNeed)}
    for need in roots:
        # What was requested by URL has one version, and what the solver did not reach has none to hold on to.
        candidate = chosen.get(need.key)
        if not isinstance(need, PackageNeed) or not isinstance(candidate, Candidate) or candidate.url:
            continue
        always = set(map(_files, family.files_of(need.name, None)))
        yield from (claim for claim in claims_of(candidate, family) if claim.key in always)
        version = candidate.version
        if (
            candidate.option is None
            and need.name not in modules | bending
            and not (version.is_prerelease or version.epoch)
        ):
            # Below 1.0 the second number is what projects raise for an incompatible change.
            oldest = ".".join(map(str, version.release[: 1 if version.major else 2]))
            at_least = SpecifierSet(f">={oldest}")
            yield LimitNeed(need.name, need.extra, at_least, None, f"{need.name}{at_least}", need.origin)


# Of how many versions the metadata is read to learn what all of them need.
_FEW = 12


def inevitable(provider: Provider, roots: Sequence[AnyNeed], among: Collection[str]) -> Iterator[ClaimNeed]:
    """Claims of packages that every answer has, because all versions that are left of what the request names need them.

    Two of them with different holders are a contradiction that a search would only find after it has tried the versions
    of everything else: 60 s for ``jax[cuda12] jax[cuda13]``.

    Args:
        provider: Of candidates and dependencies.
        roots: The request, with what :func:`settled` adds.
        among: The keys to look at: those that lead to a clash.
    """
    needs: dict[str, list[list[PackageNeed]]] = {}  # by key: the alternatives, each with all that is needed
    for need in roots:
        if isinstance(need, PackageNeed) and need.key in among:
            needs.setdefault(need.key, [[]])[0].append(need)
    # Appended to while it is read: the dependencies of what is inevitable are looked at in turn.
    waiting = [*needs]
    for key in waiting:
        name = key.partition("[")[0]
        for owner in dict.fromkeys(provider.family.files_of(name, None)):
            yield ClaimNeed(name, _files(owner), f"installs {_files(owner)}")
        if (suffix := cuda_suffix(name)) and suffix[0] in provider.family.runtime:
            yield ClaimNeed(str(suffix[1]), CUDA_MAJOR, f"is a library of CUDA {suffix[1]}")
        versions = _few_versions(provider, key, needs[key])
        # Only what every version claims: one version without the claim, and there may be an answer.
        majors = [{claim for claim in provider.claims(one) if claim.key == CUDA_MAJOR} for one in versions]
        yield from set[ClaimNeed].intersection(*majors) if majors else ()
        for wanted in sorted(set[str].intersection(*map(set, versions.values()))) if versions else ():
            if wanted in among and wanted not in needs:
                needs[wanted] = [[own[wanted]] for own in versions.values()]
                waiting.append(wanted)


def _few_versions(
    provider: Provider, key: str, alternatives: Sequence[Sequence[PackageNeed]]
) -> dict[Candidate, dict[str, PackageNeed]]:
    """The versions of a package that are left, with their needs by key; none if they are many, or an index fails."""
    found: dict[Candidate, dict[str, PackageNeed]] = {}
    for needs in alternatives:
        matches = provider.find_matches(key, {key: iter(needs)}, {key: iter(())})
        for candidate in islice(build_iter_view(matches), _FEW + 1 - len(found)):
            try:
                own = [need for need in provider.get_dependencies(candidate) if isinstance(need, PackageNeed)]
            # A hint for speed must not fail the plan; the search itself will meet the index again and report it.
            except IndexUnavailableError:
                return {}
            assert isinstance(candidate, Candidate)
            found[candidate] = {need.key: need for need in own}
    return found if len(found) <= _FEW else {}


def needing_torch(provider: Provider, roots: Sequence[AnyNeed]) -> Iterator[tuple[AnyNeed, AnyCandidate]]:
    """The requirements on torch of the newest releases of the requested packages, each with its release.

    If no torch runs on the machines, a search goes back to releases from before their need for torch, which nobody
    wants: hundreds of releases of ultralytics, and two minutes without an answer.
    """
    for need in roots:
        if isinstance(need, PackageNeed) and not need.url:
            with suppress(IndexUnavailableError):
                matches = provider.find_matches(need.key, {need.key: iter([need])}, {need.key: iter(())})
                for candidate in islice(build_iter_view(matches), 1):
                    needs = provider.get_dependencies(candidate)
                    yield from ((one, candidate) for one in needs if one.key == "torch")


def about_age(chosen: Mapping[str, Chosen], family: Family) -> Iterator[PlanWarning]:
    """Binaries from before the ABI of a module beside them; that they use the module at all is only likely."""
    for one in (one for one in family.catalogue.compiled_against if one.published_before):
        module = chosen[one.module].candidate if one.module in chosen else None
        if module is None or SpecifierSet(one.module_versions).contains(module.version, prereleases=True):
            continue
        for package, uploaded in _binaries(chosen, one.module):
            if uploaded < (one.published_before or ""):
                text = f"{package.label} is older than the binary interface of {module.label}; importing it may fail"
                yield PlanWarning(
                    "older-than-abi", text, f'if importing fails, add "{one.module}{one.module_versions}"'
                )
    if "torch" in chosen:
        torch = chosen["torch"].candidate
        for package, uploaded in _binaries(chosen, "torch"):
            # What is compiled against torch's C++ interface loads beside that minor release only.
            later = [v for v, day in _first_days(family).items() if day > uploaded and v <= _minor(torch.version)]
            if later:
                text = f"{package.label} has compiled code and is older than {torch.label}"
                text = f"{text}; if it is linked to torch, importing it fails"
                yield PlanWarning("older-than-abi", text, f'if importing fails, add "torch<{min(later)}"')


def _binaries(chosen: Mapping[str, Chosen], module: str) -> Iterator[tuple[Candidate, str]]:
    """The wheels with compiled code that require a module, and that the catalogue does not describe; their days."""
    for package in (other.candidate for other in chosen.values() if module in other.requires):
        file = package.file
        if file and file.upload_time and file.filename.endswith(".whl") and not file.filename.endswith("-any.whl"):
            yield package, file.upload_time


def _first_days(family: Family) -> dict[Version, str]:
    """The day of the first release of each minor version of torch."""
    found: dict[Version, str] = {}
    for build in family.catalogue.builds("torch"):
        if build.released:
            minor = _minor(Version(build.version))
            found[minor] = min(build.released, found.get(minor, build.released))
    return found


def _minor(version: Version) -> Version:
    return Version(f"{version.major}.{version.minor}")


def runtime_libraries(chosen: Mapping[str, Chosen], family: Family) -> dict[str, int]:
    """The packages that hold libraries of the CUDA runtime, each with its CUDA major."""
    suffixes = {name: suffix for name in chosen if (suffix := cuda_suffix(name))}
    return {name: major for name, (project, major) in suffixes.items() if project in family.runtime}


def about_borrowed(chosen: Mapping[str, Chosen], family: Family) -> Iterator[PlanWarning]:
    """Builds that load libraries of a CUDA major, or torch, which no package in the plan provides."""
    builds = [one.candidate.option.build for one in chosen.values() if one.candidate.option]
    majors = {*runtime_libraries(chosen, family).values()}
    majors |= {build.cuda_version.major for build in builds if build.package == "torch" and build.cuda_version}
    if "cuda-toolkit" in chosen:
        majors.add(chosen["cuda-toolkit"].candidate.version.major)
    lacking: dict[int, list[Build]] = {}
    for build in builds:
        needed = None if _is_told(build, family) else family.borrows(build)
        if needed and needed not in majors and not _on_machines(needed, family):
            lacking.setdefault(needed, []).append(build)
        if build.torch_cuda and "torch" not in chosen:
            text = f"{build.package} {build.version} imports torch but does not require it"
            yield PlanWarning(
                "torch-not-required", text, "add torch to the requirements, unless torch is already installed"
            )
    for major, some in lacking.items():
        names = " and ".join(f"{build.package} {build.version}" for build in some)
        text = f"no package in the plan provides the CUDA {major} libraries that {names} requires"
        asked = [f"request {build.package}[{','.join(extras)}]" for build in some if (extras := _bringing(build))]
        yield PlanWarning(
            "cuda-libraries-missing", text, ", or ".join([*asked[:1], f"install CUDA {major} on the machine"])
        )


def _is_told(build: Build, family: Family) -> bool:
    """Whether the warning `gpu-unused` says what a build lacks."""
    return any(_gpu_parts(build.package, build.version, family.catalogue))


def _bringing(build: Build) -> list[str]:
    """The extras with which a build requires libraries of the CUDA runtime."""
    lines = [line for line in build.requires or () if line.startswith("cuda-toolkit") or cuda_suffix(line)]
    return [*dict.fromkeys(extra for line in lines if (extra := only_for(line)))]


def _on_machines(major: int, family: Family) -> bool:
    """Whether every machine is known to have a toolkit of a CUDA major."""
    return all(any((t.version or "").startswith(f"{major}.") for t in m.toolkits or ()) for m in family.machines)


def about_gpu_parts(
    packages: Sequence[PlannedPackage], requested: Collection[str], machines: Sequence[Machine], family: Family
) -> Iterator[PlanWarning]:
    """Packages that run on the CPU although the machines have GPUs, because their GPU libraries are missing.

    Args:
        packages: Those of the plan.
        requested: Normalised names of what was requested.
        machines: As they are judged: without GPUs if a CPU variant was requested.
        family: The facts.
    """
    if not any(machine.gpus for machine in machines):
        return
    platforms = {f"{one.os}-{one.arch}" for one in (assumed(machine.platform) for machine in machines)}
    names = {package.name for package in packages}
    for package in packages:
        parts = [part for part in _parts(package, requested, family.catalogue) if all(map(part.is_for, platforms))]
        if not parts or any(name in names for part in parts for name in part.provided_by):
            continue
        served = [part for part in parts if part.cuda is None or _all_run(part.cuda, machines, family.facts)]
        text = f"{package.name} {package.version} does not use the GPU: the plan lacks {(served or parts)[0].lacks}"
        yield PlanWarning("gpu-unused", text, _ask_for(served[0]) if served else _NO_PART)


def about_optional(chosen: Mapping[str, Chosen], family: Family) -> Iterator[PlanWarning]:
    """Packages that work without a GPU, and whose own code does not run on the GPUs of the machines."""
    for name, one in chosen.items():
        option = one.candidate.option
        if option is None or option.build.variant in ("cpu", ANY) or not family.is_optional(name):
            continue
        if option.verdict.failures and any(machine.gpus for machine in family.machines):
            text = f"{name} {option.build.version} does not use the GPU: {option.verdict.failures[0].text}"
            yield PlanWarning("gpu-unused", text, "it works on the CPU; to use the GPU, plan it without torch")


def _parts(package: PlannedPackage, requested: Collection[str], catalogue: Catalogue) -> list[GpuPart]:
    named = [*_gpu_parts(package.name, package.version, catalogue)]
    if package.name not in requested:
        named = [part for part in named if not part.requested]
    if package.kind != "sdist":
        named = [part for part in named if not part.source_build]
    return named


def _gpu_parts(package: str, version: str, catalogue: Catalogue) -> Iterator[GpuPart]:
    return (part for part in catalogue.gpu_parts if part.is_about(package, version))


def _ask_for(part: GpuPart) -> str | None:
    return "; ".join(filter(None, (f"request {part.ask}" if part.ask else None, part.note))) or None


def _all_run(cuda: str, machines: Sequence[Machine], facts: Facts) -> bool:
    """Whether no machine's driver or GPU excludes libraries of a toolkit."""
    for machine in machines:
        system = machine.platform.os if machine.platform else None
        driver = lifted(machine, facts.forward)
        if driver_runs(cuda, driver, system, facts.toolkits, facts.floors).reason.ok is False:
            return False
        cards = [gpu.cc for gpu in machine.gpus or () if gpu.cc]
        if any(facts.libraries_serve(cuda, cc).ok is False for cc in cards):
            return False
    return True


def about_stand_in_triton(packages: Sequence[PlannedPackage], family: Family) -> Iterator[PlanWarning]:
    """GPUs that are too old for a package that replaces Triton; of its own ptxas nothing is known."""
    stand_ins = {one.package for one in family.catalogue.shared_files if one.stands_in and one.owner == TRITON}
    oldest = min((gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc), default=None)
    for package in packages:
        release = family.facts.tritons.get(Version(package.version).base_version)
        if package.name in stand_ins and release and oldest and oldest < ComputeCapability.parse(release.min_cc):
            text = f"{package.name} {package.version} supports cc {release.min_cc} and newer, not {oldest}"
            yield PlanWarning(
                "triton-limited", f"{text}; torch itself runs, but torch.compile and Triton kernels do not"
            )
