"""The rounds of a plan: the request is solved, and once more with what is known only by then.

Which torch sources are compiled against, which ready wheel of an extension is compatible with that torch, which ptxas
its Triton needs, and what compiling takes. An answer in which torch moved is thrown away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.errors import IndexUnavailableError
from envsolve.facts.hardware import CompilerPackages, Ptxas, Toolkit, TritonRelease
from envsolve.machine.model import Driver, Machine
from envsolve.packages.model import MetadataUnavailableError
from envsolve.packages.requirements import Need
from envsolve.planning.pinning import Pinned
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON, chosen_ptxas, triton_runs
from envsolve.rules.nvidia.driver import lifted
from envsolve.rules.verdict import Reason
from envsolve.solve.candidate_selector import CandidateSelector, Ready, ready
from envsolve.solve.family import Family, Option
from envsolve.solve.limits import Limits
from envsolve.solve.outcome import Conflict, PlanWarning
from envsolve.solve.pins import pins_of
from envsolve.solve.provider import Provider
from envsolve.solve.resolver import Budget, Solution, solve
from envsolve.toolchain.model import (
    SITE_PACKAGES,
    Compiled,
    Toolchain,
    compiled_packages,
    compiled_when_used,
    is_windows,
    on_windows,
)
from envsolve.values import ComputeCapability, CudaVersion

# A ptxas out of a package, for a Triton whose own ones do not serve the GPUs (rule 6).


class Assembler(msgspec.Struct, frozen=True):
    """A ptxas from a package that replaces those of a Triton release that do not support the GPUs.

    Attributes:
        release: The release as it is with this ptxas.
        needs: The package that holds it.
        environment: The variables that name it, ``TRITON_PTXAS_PATH``.
        because: Why the release's own does not do.
    """

    release: TritonRelease
    needs: tuple[Need, ...]
    environment: Mapping[str, str]
    because: str

    @property
    def package(self) -> str:
        """Name of the package that holds it."""
        return canonicalize_name(self.needs[0].requirement.name)

    def among(self, facts: Facts) -> Facts:
        """The facts with this ptxas in use."""
        return replace(facts, tritons={**facts.tritons, self.release.version: self.release})

    def caution(self, version: str | None) -> PlanWarning:
        """Notes for the user.

        Args:
            version: The package's version in the plan.
        """
        names = " and ".join(self.environment)
        text = f"{self.because}; the plan adds {self.package} {version}, and {names} makes Triton use its ptxas"
        remedy = f"`envsolve install` sets {names} for PREFIX/bin/python; with another installer, set it yourself"
        return PlanWarning("triton-assembler", text, remedy)


class _Card(msgspec.Struct, frozen=True):
    """A compute capability among the machines, with the driver beside it."""

    cc: ComputeCapability
    driver: Driver | None
    os: str | None

    def runs(self, release: TritonRelease, facts: Facts) -> Reason:
        """Rule 6."""
        return triton_runs(release, self.cc, self.driver, self.os, facts.toolkits, facts.floors)


def assemblers(
    triton: str, machines: Sequence[Machine], facts: Facts, compilers: Sequence[CompilerPackages]
) -> Iterator[Assembler]:
    """The ptxas programs of packages with which a Triton supports every GPU that its own leave out.

    Those that require the least of drivers come first, and of one CUDA family the newest. Empty if the Triton's own
    support all GPUs, if suitable ones were not measured, or if a GPU is too old for it whatever the ptxas.

    Args:
        triton: Version of Triton in the plan.
        machines: As they are judged.
        facts: The tables of the rules.
        compilers: What the package managers have.
    """
    release = facts.tritons.get(triton)
    if release is None:
        return
    # A cluster has thousands of machines and a handful of different cards.
    cards = tuple(dict.fromkeys(_cards(machines, facts)))
    failures = {card: reason for card in cards if (reason := card.runs(release, facts)).ok is False}
    if not failures:
        return
    from envsolve.rules.nvidia.toolchain import ptxas_packages  # late: most plans need no other ptxas

    replaced = {p.override for card in failures if (p := chosen_ptxas(release, card.cc))}
    # The lowest family first, because its cubins load on the oldest drivers; within a family the newest knows
    # most GPUs.
    for toolkit in sorted(facts.toolkits, key=lambda t: (t.cuda_version.major, -t.cuda_version.minor)):
        packages = ptxas_packages(toolkit.version, compilers)
        if packages is None or not _takes(release, toolkit.version):
            continue
        # All GPUs again, not only those that failed: the override applies to every card of the machine.
        given = _given(release, replaced, toolkit, packages)
        if all(_serves(given, replaced, card, facts) for card in cards):
            origin = f"the ptxas of Triton {triton} does not support every GPU"
            filled = (Requirement(line.format(cuda=toolkit.version)) for line in packages.ptxas_packages)
            yield Assembler(
                given,
                tuple(Need(requirement, origin) for requirement in filled),
                dict.fromkeys(sorted(replaced), f"{SITE_PACKAGES}/{packages.ptxas}"),
                next(iter(failures.values())).text,
            )


def _cards(machines: Sequence[Machine], facts: Facts) -> Iterator[_Card]:
    for machine in machines:
        os = machine.platform.os if machine.platform else None
        for gpu in machine.gpus or ():
            if gpu.cc is not None:
                yield _Card(gpu.cc, lifted(machine, facts.forward), os)


def _takes(release: TritonRelease, cuda: str) -> bool:
    """Whether a Triton writes the PTX that the ptxas of a CUDA version reads."""
    if release.ptxas_first is None or CudaVersion.parse(cuda) < CudaVersion.parse(release.ptxas_first):
        return False
    return release.ptxas_last is None or CudaVersion.parse(cuda) <= CudaVersion.parse(release.ptxas_last)


def _given(release: TritonRelease, replaced: set[str], toolkit: Toolkit, packages: CompilerPackages) -> TritonRelease:
    name = Requirement(packages.ptxas_packages[0].format(cuda=toolkit.version)).name

    def instead(own: Ptxas) -> Ptxas:
        if own.override not in replaced:
            return own
        file = f"the ptxas of {name}"
        return replace(own, file=file, cuda=toolkit.version, ptx_isa=toolkit.ptx_isa, archs=toolkit.archs)

    return replace(release, ptxas=tuple(map(instead, release.ptxas)))


def _serves(release: TritonRelease, replaced: set[str], card: _Card, facts: Facts) -> bool:
    """Whether the ptxas that the release gets supports a GPU, or at least is not known to fail."""
    ptxas = chosen_ptxas(release, card.cc)
    if ptxas is not None and ptxas.override in replaced and str(card.cc) not in release.targets:
        return False
    return card.runs(release, facts).ok is not False


class Resolved(msgspec.Struct, frozen=True):
    """The solver's choice, and the candidates for it.

    Attributes:
        needs: What was requested, and what was added to it.
        ready: Wheels that are on no index, of packages that would be compiled.
        assembler: The ptxas that was added for Triton.
    """

    needs: Sequence[Need]
    solution: Solution
    pinned: Pinned
    provider: Provider
    family: Family
    limits: Limits
    ready: Ready
    assembler: Assembler | None = None

    @property
    def torch(self) -> Option | None:
        """The torch in the solution; None if there is none, or if it was requested by URL."""
        chosen = self.solution.chosen.get("torch")
        return chosen.candidate.option if chosen else None

    def version(self, package: str) -> str | None:
        """The version of a package in the solution; None if it is not in it."""
        chosen = self.solution.chosen.get(package)
        return str(chosen.candidate.version) if chosen else None


Resolve = Callable[[Sequence[Need], Family, Ready], Resolved]


class NothingFitsError(Exception):
    """The request has no answer.

    Attributes:
        conflict: Why, made only when asked for: with fixes that further solves have proved, or without these.
    """

    def __init__(self, conflict: Callable[[bool], Conflict]) -> None:
        super().__init__("nothing fits")
        self.conflict = conflict


def solved(
    provider: Provider,
    selector: CandidateSelector,
    needs: Sequence[Need],
    variant: str | None,
    budget: Budget | None = None,
) -> Solution:
    """Like :func:`solve`, but leaves out files whose metadata cannot be read."""
    while True:
        try:
            return solve(provider, needs, variant, budget)
        # One file without readable metadata must not make the request impossible while another release has some.
        except MetadataUnavailableError as failure:
            selector.leave_out(failure)


def with_torch(found: Resolved, resolve: Resolve) -> Resolved:
    """The same with torch, and what else is known to be needed, for what is compiled and does not say so itself.

    Raises:
        NothingFitsError: No torch is compatible with it.
    """
    compiled = compiled_packages(found.pinned.packages, found.family.catalogue)
    needs = [need for one in compiled for need in _unsaid(one, found)]
    return resolve((*found.needs, *needs), found.family, found.ready) if needs else found


def _unsaid(one: Compiled, found: Resolved) -> Iterator[Need]:
    """Needs of a package that are missing from its metadata, as far as it was read."""
    if one.needs_torch and "torch" not in found.solution.chosen:
        limit = one.project.torch or "" if one.project else ""
        yield Need(Requirement(f"torch{limit}"), f"compiling {one.name}")
    package = next(package for package in found.pinned.packages if package.name == one.name)
    if package.tree is not None and not package.tree.exact and one.project is not None:
        yield from (Need(Requirement(line), f"{one.name} requires it") for line in one.project.requires or ())


def with_ready_wheels(found: Resolved, resolve: Resolve) -> Resolved:
    """Use wheels from outside the indexes instead of compiling packages, if they exist for exactly this torch."""
    torch = found.torch
    if torch is None:
        return found
    compiled = compiled_packages(found.pinned.packages, found.family.catalogue)
    wheels = {one.name: ready(one.name, torch.build, found.family) for one in compiled}
    if not any(wheels.values()):
        return _beside_another_torch(found, compiled, resolve)
    try:
        again = resolve(found.needs, found.family, wheels)
    # A ready wheel is an offer: it may pin a package that the rest of the request excludes.
    except NothingFitsError:
        return found
    return again if again.torch and again.torch.identity == torch.identity else found


# Variants of the torch that a ready wheel is for: the rest of a request may exclude the first ones.
_TORCHES_TRIED = 4


def _beside_another_torch(found: Resolved, compiled: Sequence[Compiled], resolve: Resolve) -> Resolved:
    """The same with the newest torch for which a pinned extension has a ready wheel, if the rest allows that torch.

    A release that is pinned was made for the torches of its time: beside a newer one its sources may not compile.
    """
    for one in compiled:
        pinned = pins_of(found.needs, one.name)
        torches = (o for o in found.family.options("torch") if pinned and o.verdict.level.usable)
        offers = ((o, [w for w in ready(one.name, o.build, found.family) if w.matches(pinned)]) for o in torches)
        for torch, wheels in islice((offer for offer in offers if offer[1]), _TORCHES_TRIED):
            need = Need(Requirement(f"torch=={torch.version}"), f"the prebuilt wheel of {wheels[0].label}")
            with contextlib.suppress(NothingFitsError, IndexUnavailableError):
                return resolve((*found.needs, need), found.family, {**found.ready, one.name: wheels})
    return found


def with_assembler(found: Resolved, resolve: Resolve) -> Resolved:
    """The same with a ptxas from a package, if Triton's own does not support every GPU and torch stays as it is."""
    triton, family = found.version(TRITON), found.family
    if triton is None:
        return found
    for assembler in assemblers(triton, family.machines, family.facts, family.catalogue.compilers):
        try:
            facts = assembler.among(family.facts)
            again = resolve((*found.needs, *assembler.needs), replace(family, facts=facts), found.ready)
        except (NothingFitsError, IndexUnavailableError):
            continue
        if all(again.version(package) == found.version(package) for package in ("torch", TRITON)):
            return replace(again, assembler=assembler)
    return found


def with_build_tools(found: Resolved, asked: Sequence[str], resolve: Resolve) -> Resolved:
    """The same with what compiling its sources takes, the nvcc included where packages have it.

    So it is locked with the rest, and what is compiled with it is the same everywhere.
    """
    compiled = compiled_in(found, asked)
    if not compiled:
        return found
    from envsolve.toolchain.plan import build_needs  # late: most plans compile nothing

    toolchain, _ = toolchain_of(found, compiled)
    # The tools were chosen for this torch; an answer that moves torch to fit the tools in would need other tools again.
    kept = ("torch", TRITON, *(one.name for one in compiled))
    # An index of one's own may have no nvcc.
    for needs in (build_needs(toolchain), build_needs(replace(toolchain, nvcc_from=None))):
        try:
            again = resolve((*found.needs, *needs), found.family, found.ready)
        except (NothingFitsError, IndexUnavailableError):
            continue
        if all(again.version(package) == found.version(package) for package in kept):
            return replace(again, assembler=found.assembler)
    return found


def compiled_in(found: Resolved, asked: Sequence[str]) -> tuple[Compiled, ...]:
    """Packages that compile CUDA code against the torch of a solution, or need none."""
    packages, catalogue = found.pinned.packages, found.family.catalogue
    compiled = (*compiled_packages(packages, catalogue), *compiled_when_used(packages, asked, catalogue))
    if "torch" not in found.solution.chosen:
        return tuple(one for one in compiled if one.project and not one.needs_torch)
    # Of a torch that was asked for by URL nothing is known.
    return compiled if found.torch else ()


def toolchain_of(found: Resolved, compiled: Sequence[Compiled]) -> tuple[Toolchain, tuple[PlanWarning, ...]]:
    """The toolchain that compiles sources for the machines of a plan, and warnings about it."""
    from envsolve.toolchain.plan import toolchain_for

    torch, family = found.torch, found.family
    known = [driver.cuda if (driver := lifted(m, family.facts.forward)) else None for m in family.machines]
    # One driver of unknown CUDA makes the minimum meaningless: it may be the oldest of them.
    versions = [cuda for cuda in known if cuda]
    driver_cuda = min(versions, key=CudaVersion.parse) if versions and len(versions) == len(known) else None
    made = toolchain_for(compiled, torch.build if torch else None, family.machines, driver_cuda, family.catalogue)
    return on_windows(*made) if is_windows(family.machines) else made
