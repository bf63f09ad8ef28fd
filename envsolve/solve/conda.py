"""The solve: builds that the rules accept, and the CUDA variant of every package that has one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from envsolve.facts.hardware import branch_of
from envsolve.machine.model import Machine, Platform
from envsolve.rules.conda import (
    JUDGED,
    Candidate,
    CondaJudge,
    JudgedBuild,
    Spec,
    VirtualPackage,
    needs_cuda,
    python_of,
    tiers,
)
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.driver import lifted
from envsolve.rules.platform import ASSUMED_GLIBC, libc_of
from envsolve.solve.conda_channels import Channels, UnsolvableError
from envsolve.values import CudaVersion

_ROUNDS = 4
"""Depth to follow variants: a CUDA variant may bring in packages that have one, but chains are not this long."""


@dataclass(frozen=True, slots=True)
class Question:
    """The problem to solve.

    Attributes:
        specs: What must be there; those that envsolve adds are among them.
        constraints: Constraints on packages that other packages require.
        virtual: The machines' virtual packages.
        subdir: Their subdir.
    """

    specs: tuple[Spec, ...]
    constraints: tuple[Spec, ...]
    virtual: tuple[VirtualPackage, ...]
    subdir: str

    @property
    def on_gpu(self) -> bool:
        """Whether the machines run CUDA."""
        return any(package.name == "__cuda" for package in self.virtual)

    def without(self, spec: Spec) -> Question:
        """The same problem with one requirement dropped."""
        return replace(self, specs=tuple(one for one in self.specs if one != spec))


@dataclass(frozen=True, slots=True)
class Solution:
    """The answer.

    Attributes:
        packages: In the order in which they are installed.
        judged: Those of them that the catalogue describes, or should.
        variants: Names of the packages that have a CUDA variant, that of the solution.
        on_cpu: Names of those that have one which fits nothing else here.
    """

    packages: tuple[Candidate, ...]
    judged: Mapping[str, JudgedBuild]
    variants: frozenset[str]
    on_cpu: tuple[str, ...]


class Solver:
    """Solves questions about the same channels and machines.

    Args:
        channels: Where packages come from.
        judge: The rules on the machines.
    """

    def __init__(self, channels: Channels, judge: CondaJudge) -> None:
        self._channels = channels
        self._judge = judge
        self._builds: dict[str, dict[str, tuple[JudgedBuild, ...]]] = {}

    def for_machines(self, judge: CondaJudge) -> Solver:
        """A solver of the same channels for other machines."""
        return Solver(self._channels, judge)

    def builds(self, subdir: str) -> Mapping[str, tuple[JudgedBuild, ...]]:
        """Every build of the judged packages, with its verdict."""
        if subdir not in self._builds:
            found = self._channels.candidates(JUDGED, subdir)
            self._builds[subdir] = {name: self._judge.judged(found.get(name, ())) for name in JUDGED}
        return self._builds[subdir]

    def has(self, spec: Spec, subdir: str) -> bool:
        """Whether any channel has a package that meets a spec, whatever it needs itself."""
        return bool(self._channels.candidates([str(replace(spec, channel=None))], subdir))

    def solve(self, question: Question) -> Solution:
        """The best answer: builds of the best tier that has any answer, CUDA variants wherever they fit.

        Raises:
            UnsolvableError: No solution exists.
            IndexUnavailableError: A channel could not be read.
        """
        failure: UnsolvableError | None = None
        for allowed in self._allowed(question.subdir):
            try:
                return self._on_cuda(question, allowed)
            except UnsolvableError as error:
                failure = error  # the widest question has the most telling answer
        raise failure or UnsolvableError(["no channel has a build that runs on the machines"])

    def _allowed(self, subdir: str) -> Iterator[dict[str, tuple[Candidate, ...]]]:
        """For each tier the judged packages that may be chosen; empty for a package of which no build is usable."""
        builds = {name: some for name, some in self.builds(subdir).items() if some}
        levels = {name: tiers(some) for name, some in builds.items()}
        for level in range(max((len(some) for some in levels.values()), default=0)) or (0,):
            yield {
                name: tuple(one.candidate for one in some[min(level, len(some) - 1)]) if some else ()
                for name, some in levels.items()
            }

    def _on_cuda(self, question: Question, allowed: Mapping[str, tuple[Candidate, ...]]) -> Solution:
        packages = self._answer(question, allowed)
        demanded: dict[str, tuple[Candidate, ...]] = {}
        refused: list[str] = []
        for _ in range(_ROUNDS if question.on_gpu else 0):
            lesser = self._with_cuda_variant(packages, question.subdir, {*allowed, *demanded, *refused})
            if not lesser:
                break
            try:
                packages = self._answer(question, {**allowed, **demanded, **lesser})
                demanded |= lesser
            except UnsolvableError:
                for name, variants in lesser.items():
                    try:
                        packages = self._answer(question, {**allowed, **demanded, name: variants})
                        demanded[name] = variants
                    except UnsolvableError:
                        refused.append(name)
        judged = {
            one.candidate.name: one
            for some in self.builds(question.subdir).values()
            for one in some
            if one.candidate in packages
        }
        there = {package.name for package in packages}
        choosing = frozenset(name for name in (*demanded, *self._choosing(packages, question)) if name in there)
        return Solution(packages, judged, choosing, tuple(name for name in refused if name in there))

    def _answer(self, question: Question, only: Mapping[str, tuple[Candidate, ...]]) -> tuple[Candidate, ...]:
        return self._channels.solve(question.specs, question.constraints, question.virtual, question.subdir, only)

    def _choosing(self, packages: Sequence[Candidate], question: Question) -> Iterator[str]:
        """The packages whose version has CUDA and CPU variants, and whose CUDA variant was chosen."""
        cuda = [package for package in packages if needs_cuda(package) and package.subdir != "noarch"]
        others = self._same_versions(cuda, question.subdir)
        yield from (one.name for one in cuda if not all(map(needs_cuda, others.get(one.name, ()))))

    def _with_cuda_variant(
        self, packages: Sequence[Candidate], subdir: str, settled: set[str]
    ) -> dict[str, tuple[Candidate, ...]]:
        """For each package on the CPU whose version has a CUDA variant for this Python: the builds that are one."""
        lesser = [p for p in packages if not needs_cuda(p) and p.subdir != "noarch" and p.name not in settled]
        same = self._same_versions(lesser, subdir)
        found = {}
        for package in lesser:
            variants = tuple(one for one in same.get(package.name, ()) if needs_cuda(one))
            if any(python_of(one) in (None, python_of(package)) for one in variants):
                found[package.name] = variants
        return found

    def _same_versions(self, packages: Sequence[Candidate], subdir: str) -> dict[str, tuple[Candidate, ...]]:
        specs = [str(Spec(package.name, f"=={package.version}")) for package in packages]
        found = self._channels.candidates(specs, subdir)
        versions = {package.name: package.version for package in packages}
        return {name: tuple(o for o in some if o.version == versions.get(name)) for name, some in found.items()}


# The virtual packages of the machines that a plan is for, whatever the machine that plans has.
#
# conda, mamba and pixi find them out on the machine that solves, so that a login node, or the build of an image, gets
# CPU builds. Here they follow from the machine's description. Source: CEP 30 (the packages), CEP 46 (``__cuda_arch``).


def virtual_packages(machines: Sequence[Machine], facts: Facts) -> tuple[VirtualPackage, ...]:
    """Facts that hold on all of the machines: of several, the lowest.

    Args:
        machines: As they are judged, of one subdir.
        facts: The tables of the rules.
    """
    return (*system_packages(machines), *_cuda(machines, facts))


def system_packages(machines: Sequence[Machine]) -> Iterator[VirtualPackage]:
    """Facts of all of the machines that do not depend on a driver or GPU."""
    platform = machines[0].platform or Platform()
    if platform.os == "windows":
        yield VirtualPackage("__win", "0")
    else:
        # The kernel's version is not part of a machine's description: a package that asks for one is left out.
        yield from (VirtualPackage("__unix", "0"), VirtualPackage("__linux", "0"))
        known = [libc[1] for machine in machines if (libc := libc_of(machine.platform))]
        unsaid = len(known) < len(machines)
        oldest = min([*known, *([ASSUMED_GLIBC] if unsaid else [])])
        assumed = "a machine's libc is not known" if unsaid and oldest == ASSUMED_GLIBC else None
        yield VirtualPackage("__glibc", ".".join(map(str, oldest)), assumed=assumed)
    # The base of the architecture: which extensions the processor has is not part of a machine's description.
    yield VirtualPackage("__archspec", "1", platform.arch or "x86_64")


def _cuda(machines: Sequence[Machine], facts: Facts) -> Iterator[VirtualPackage]:
    if any(machine.gpus == () for machine in machines):
        return
    known = [cuda for machine in machines if (cuda := _driver_cuda(machine, facts))]
    if len(known) == len(machines):
        yield VirtualPackage("__cuda", min(known, key=CudaVersion.parse))
    else:
        # No driver can be told from none: a lower value would hide builds, and the plan says that it is not known.
        newest = max((*(toolkit.version for toolkit in facts.toolkits), *known), key=CudaVersion.parse)
        cuda = str(CudaVersion.parse(min(known, key=CudaVersion.parse) if known else newest))
        yield VirtualPackage("__cuda", cuda, assumed="a machine's driver is not known")
    cards = [gpu.cc for machine in machines for gpu in machine.gpus or ()]
    if cards and all(machine.gpus for machine in machines) and all(cards):
        yield VirtualPackage("__cuda_arch", str(min(cc for cc in cards if cc)))


def _driver_cuda(machine: Machine, facts: Facts) -> str | None:
    """The newest CUDA that the driver runs in full: conda gets it there from ``cuDriverGetVersion``."""
    driver = lifted(machine, facts.forward)
    if driver is None:
        return None
    branch = branch_of(driver.version, facts.drivers)
    return driver.cuda or (branch.cuda if branch else None)
