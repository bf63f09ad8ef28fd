"""The rules applied to the builds of a conda channel, through the catalogue's records of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from msgspec import structs

from envsolve.facts.builds import Build, CondaBuild
from envsolve.facts.evidence import Evidence
from envsolve.facts.hardware import TritonRelease, toolkit_of
from envsolve.machine.model import Machine, Platform
from envsolve.rules.judge import Judge, judge_of, worst
from envsolve.rules.nvidia import Facts
from envsolve.rules.verdict import Level, Verdict
from envsolve.values import CudaVersion

# What conda planning works with: what is asked, what a machine offers, what a channel has.


@dataclass(frozen=True, slots=True)
class Spec:
    """One match spec, read.

    Attributes:
        name: Package name as conda-forge has it.
        version: Version spec, ``>=2.5,<2.8``, ``2.7.*``; None for any.
        build: Pattern of the build string, ``cuda129*``; None for any.
        channel: The channel that it must come from; None for any.
        origin: Where it was written: ``command line``, ``environment.yml``.
    """

    name: str
    version: str | None = None
    build: str | None = None
    channel: str | None = None
    origin: str = "command line"

    def __str__(self) -> str:
        """The match spec: ``pytorch >=2.5 cuda*``."""
        name = f"{self.channel}::{self.name}" if self.channel else self.name
        if self.build:
            return f"{name} {self.version or '*'} {self.build}"
        return f"{name} {self.version}" if self.version else name


@dataclass(frozen=True, slots=True)
class VirtualPackage:
    """Virtual packages that a solver assumes a machine to have.

    Attributes:
        assumed: Why it had to be assumed, in words; None if the machine says it.
    """

    name: str
    version: str
    build: str = "0"
    assumed: str | None = None

    def __str__(self) -> str:
        """``12.4``, or ``1=x86_64`` if the build string carries information."""
        return self.version if self.build == "0" else f"{self.version}={self.build}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One package file of a channel.

    Attributes:
        number: Build number.
        depends: Match specs of its dependencies.
        channel: The channel's URL.
        hashes: ``sha256`` and ``md5``, if the channel gives them.
        size: Bytes.
    """

    name: str
    version: str
    build: str
    number: int
    subdir: str
    channel: str
    url: str
    filename: str
    depends: tuple[str, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of its dependencies, virtual packages among them."""
        return tuple(dict.fromkeys(line.split()[0].split("[")[0] for line in self.depends))


#: Packages that the catalogue describes, by what else the same recipe makes with the same code.
JUDGED = {"pytorch": "pytorch", "libtorch": "pytorch"}
#: The subdirs that have CUDA builds, each with its system and the platform tag that wheels have for the same one.
SUBDIRS = {
    "linux-64": ("linux", "x86_64", "linux_x86_64"),
    "linux-aarch64": ("linux", "aarch64", "linux_aarch64"),
    "win-64": ("windows", "x86_64", "win_amd64"),
}
# conda-forge adds 200 for CUDA and 100 for MKL to the build number of the recipe.
_OWN_NUMBERS = 100
# What a build that runs CUDA code depends on: `pytorch-cuda` on the channel pytorch, `cudatoolkit` up to CUDA 11.
_MARKS = frozenset({"__cuda", "cuda-version", "cudatoolkit", "pytorch-cuda"})


@dataclass(frozen=True, slots=True)
class JudgedBuild:
    """A candidate with its verdict.

    Attributes:
        build: The same as the rules take it, under the name ``torch``.
        verdict: The one that decides, of all GPUs of all machines.
        described: Whether the catalogue has a record of it.
    """

    candidate: Candidate
    build: Build
    verdict: Verdict
    described: bool


def needs_cuda(candidate: Candidate) -> bool:
    """Whether it is a CUDA variant: by what it depends on, otherwise by its build string."""
    return bool(_MARKS & {*candidate.needs}) or "cuda" in candidate.build


def cuda_of(candidate: Candidate) -> str | None:
    """The CUDA version that a CUDA variant is built with, ``12.9``; None if it does not say."""
    for line in candidate.depends:
        name, _, rest = line.partition(" ")
        bound = re.search(r"(?:>=|=|^)?(\d+\.\d+)", rest)
        if name in ("cuda-version", "pytorch-cuda", "cudatoolkit") and bound:
            return bound[1]
    tag = re.search(r"cuda_?(\d{2})\.?(\d)", candidate.build)
    return f"{tag[1]}.{tag[2]}" if tag else None


def python_of(candidate: Candidate) -> str | None:
    """The Python of a build, ``3.12``; None if it is for any Python."""
    tag = re.search(r"py(\d)\.?(\d{1,2})(?!\d)", candidate.build)
    return f"{tag[1]}.{tag[2]}" if tag else None


def variant_of(candidate: Candidate) -> str | None:
    """``cu129``, or ``cpu``; None for a CUDA variant that does not say which CUDA."""
    if not needs_cuda(candidate):
        return "cpu"
    cuda = cuda_of(candidate)
    return CudaVersion.parse(cuda).variant if cuda else None


class CondaJudge:
    """Judges the candidates of one channel set for machines."""

    def __init__(self, machines: Sequence[Machine], facts: Facts, described: Sequence[CondaBuild]) -> None:
        self.machines = machines
        self._facts = facts
        self._described = described
        self._judges: dict[str | None, tuple[Judge, ...]] = {}

    def judged(self, candidates: Iterable[Candidate]) -> tuple[JudgedBuild, ...]:
        """Every candidate with its verdict."""
        return tuple(map(self._judged, candidates))

    def judges(self, cuda: str | None) -> tuple[Judge, ...]:
        """A judge for each machine, with conda-forge's Triton: the ptxas that it runs is that of the environment."""
        if cuda not in self._judges:
            facts = structs.replace(self._facts, tritons=_with_ptxas_of(self._facts, cuda)) if cuda else self._facts
            self._judges[cuda] = tuple(judge_of(machine, facts) for machine in self.machines)
        return self._judges[cuda]

    def _judged(self, candidate: Candidate) -> JudgedBuild:
        record = self._record(candidate)
        build = as_build(record) if record else _undescribed(candidate)
        return JudgedBuild(candidate, build, self.verdict(build), record is not None)

    def verdict(self, build: Build) -> Verdict:
        """The verdict that decides, of all GPUs of all machines."""
        return worst([v for judge in self.judges(build.cuda) for v in judge.verdicts(build, None)])

    def _record(self, candidate: Candidate) -> CondaBuild | None:
        """The catalogue's record of a candidate; None if it has none, or several that could be meant."""
        package, python = JUDGED.get(candidate.name), python_of(candidate)
        fitting = [
            record
            for record in self._described
            if record.package == package
            and record.version == candidate.version
            and record.subdir == candidate.subdir
            and record.number == candidate.number % _OWN_NUMBERS
            and fnmatchcase(candidate.build, record.build)
            and f"/{record.channel}" in f"/{candidate.channel.rstrip('/')}"
            and (python is None or not record.pythons or python in record.pythons)
        ]
        arms = [record for record in fitting if record.arm and _asks_for_arm(candidate, record.arm)]
        fitting = arms or fitting
        return fitting[0] if len(fitting) == 1 else None


def subdir_of(platform: Platform | None) -> str:
    """The subdir that a machine installs from, ``linux-64``. Linux and x86_64 are assumed for what is not known.

    Raises:
        KeyError: conda has no CUDA builds for that system.
    """
    known = platform or Platform()
    wanted = (known.os or "linux", known.arch or "x86_64")
    for subdir, (system, arch, _) in SUBDIRS.items():
        if (system, arch) == wanted:
            return subdir
    raise KeyError(wanted)


def as_build(record: CondaBuild) -> Build:
    """A conda build as the rules take builds."""
    return Build(
        package="torch",
        version=record.version,
        variant=CudaVersion.parse(record.cuda).variant if record.cuda else "cpu",
        platform=SUBDIRS[record.subdir][2] if record.subdir in SUBDIRS else "any",
        pythons=(),
        index=record.channel,
        evidence=record.evidence,
        source=record.source,
        code=record.code,
        requires=(f"triton=={record.triton}",) if record.triton else (),
        cuda=record.cuda,
        libc=record.libc,
        cited=record.cited,
    )


def _undescribed(candidate: Candidate) -> Build:
    """A candidate that the catalogue does not describe, as far as the index of its channel describes it."""
    triton = _triton(candidate)
    return Build(
        package="torch",
        version=candidate.version,
        variant=variant_of(candidate) or "cuda",
        platform=SUBDIRS[candidate.subdir][2] if candidate.subdir in SUBDIRS else "any",
        pythons=(),
        index=candidate.channel,
        evidence=Evidence.PUBLISHED,
        source="",
        requires=(f"triton=={triton}",) if triton else (),
        cuda=cuda_of(candidate) if needs_cuda(candidate) else None,
    )


class _HasVerdict(Protocol):
    @property
    def verdict(self) -> Verdict: ...


Judged = TypeVar("Judged", bound=_HasVerdict)


def tiers(judged: Iterable[Judged]) -> tuple[tuple[Judged, ...], ...]:
    """Builds to choose among, the best choice first: all works; Triton does not; a fact that decides is not known.

    Each holds the ones before it. A build of which the rules say that it does not run is in none.
    """
    usable = [one for one in judged if one.verdict.level is not Level.NONE]
    known = [one for one in usable if one.verdict.level.usable]
    whole = [one for one in known if one.verdict.triton is not False]
    by_size = {len(tier): tuple(tier) for tier in (usable, known, whole) if tier}  # each holds the ones before it
    return tuple(by_size[size] for size in sorted(by_size))


def _with_ptxas_of(facts: Facts, cuda: str) -> Mapping[str, TritonRelease]:
    """The Tritons as conda-forge builds them: without a ptxas of their own; they run that of cuda-nvcc-tools.

    Source: conda-forge's triton-feedstock, its run requirements and the patch "Use system PATH to find tools".
    """
    toolkit = toolkit_of(cuda, facts.toolkits)
    if toolkit is None:
        return {}
    return {version: _given(release, cuda, toolkit.archs) for version, release in facts.tritons.items()}


def _given(release: TritonRelease, cuda: str, archs: tuple[str, ...]) -> TritonRelease:
    file = "the ptxas of cuda-nvcc-tools"
    own = tuple(structs.replace(ptxas, file=file, cuda=cuda, archs=archs) for ptxas in release.ptxas)
    return structs.replace(release, ptxas=own)


def _triton(candidate: Candidate) -> str | None:
    """The Triton that a build pins, ``3.3.1`` for ``triton 3.3.1.*``."""
    pins = (re.fullmatch(r"triton ==?(\d[\d.]*)|triton (\d[\d.]*?)(?:\.\*)?", line) for line in candidate.depends)
    return next((match[1] or match[2] for match in pins if match), None)


def _asks_for_arm(candidate: Candidate, arm: str) -> bool:
    return any(line.startswith("arm-variant") and arm in line for line in candidate.depends)
