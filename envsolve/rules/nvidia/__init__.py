"""NVIDIA's rules: GPU code, drivers and Triton on NVIDIA GPUs, and the conjunction of the rules for a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.hardware import Architecture, DriverBranch, Floor, Toolkit, TritonRelease
from envsolve.machine.model import Gpu, Machine
from envsolve.rules.nvidia.code import TRITON, best_code, libraries_serve, triton_pin, triton_runs
from envsolve.rules.nvidia.driver import (
    DriverFit,
    ForwardFacts,
    can_exist,
    driver_runs,
    lifted,
    ptx_loads,
    through_compat,
)
from envsolve.rules.verdict import Level, Reason, Verdict
from envsolve.values import Arch, ComputeCapability, CudaVersion

_TORCH = "torch"


class Facts(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The tables of the catalogue that the rules read; what follows from them for a GPU is worked out once."""

    toolkits: Sequence[Toolkit]
    floors: Sequence[Floor]
    architectures: Mapping[str, Architecture]
    tritons: Mapping[str, TritonRelease]
    drivers: Sequence[DriverBranch]
    forward: ForwardFacts
    contained: frozenset[str] = frozenset()

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, catalogue: Catalogue) -> Facts:
        """Take the tables out of a catalogue, once: what is worked out for one question holds for the next."""
        tritons = {release.version: release for release in catalogue.tritons}
        return cls(
            catalogue.toolkits,
            catalogue.floors,
            catalogue.architectures,
            tritons,
            catalogue.drivers,
            ForwardFacts(catalogue),
            frozenset(name for name, member in catalogue.family.items() if member.contained),
        )

    @cached_property
    def judges(self) -> dict[bytes, Any]:
        """The judges of machines by these facts; see :func:`envsolve.rules.judge.judge_of`."""
        return {}

    @cached_property
    def _best(self) -> dict[tuple[tuple[str, ...], ComputeCapability], tuple[Level, Arch | None]]:
        return {}

    @cached_property
    def _libraries(self) -> dict[tuple[str, ComputeCapability], Reason]:
        return {}

    def best_code(self, names: tuple[str, ...], cc: ComputeCapability) -> tuple[Level, Arch | None]:
        """Rules 3 and 4 for a GPU, whose answer is the same on every machine that has one."""
        if (names, cc) not in self._best:
            self._best[names, cc] = best_code(names, cc, self.architectures)
        return self._best[names, cc]

    def libraries_serve(self, cuda: str, cc: ComputeCapability) -> Reason:
        """Rule 5 for a GPU, whose answer is the same on every machine that has one."""
        if (cuda, cc) not in self._libraries:
            self._libraries[cuda, cc] = libraries_serve(cuda, cc, self.toolkits, self.architectures)
        return self._libraries[cuda, cc]


class Nvidia:
    """The rules applied to the GPUs of one machine; what follows from the machine is worked out once."""

    def __init__(self, machine: Machine, facts: Facts) -> None:
        self._machine = machine
        self._facts = facts
        self._os = machine.platform.os if machine.platform else None
        self._lifted = lifted(machine, facts.forward)
        # Kept: one judge is asked about every build of the catalogue, and these answers depend on the GPU or
        # the CUDA only.
        self._lives: dict[Gpu, Reason] = {}
        self._fits: dict[str, DriverFit] = {}
        self._codes: dict[tuple[object, ...], tuple[Level, str | None, tuple[Reason, ...]]] = {}
        self._tritons: dict[tuple[str, ComputeCapability], Reason] = {}

    def verdicts(self, build: Build, host: Sequence[Reason]) -> tuple[Verdict, ...]:
        """One verdict per GPU, or one for no particular GPU; see :class:`envsolve.rules.judge.VendorRules`."""
        machine = self._machine
        if build.package == TRITON:
            return tuple(self._as_triton(build, gpu, host) for gpu in machine.gpus or (Gpu(),))
        cuda = build.cuda or ""
        fit = self._driver(cuda)
        # Empty is not None: a machine that is known to have no GPU is a refusal, one of which nothing is known is
        # judged below for a GPU without a name.
        if machine.gpus == ():
            nothing = Reason("sass", False, "the machine has no NVIDIA GPU to run CUDA code on")
            return (Verdict(Level.NONE, None, fit.required, None, None, (*host, nothing, fit.reason)),)
        return tuple(self._on(build, cuda, gpu, fit, host) for gpu in machine.gpus or (Gpu(),))

    def _on(self, build: Build, cuda: str, gpu: Gpu, fit: DriverFit, host: Sequence[Reason]) -> Verdict:
        level, code, reasons = self._code(build, cuda, gpu)
        every = (*host, fit.reason, *reasons)
        answers = {reason.ok for reason in every}
        # A failure outweighs what is not known: nothing that could still be learned makes this build run.
        if False in answers:
            level, code = Level.NONE, None
        elif None in answers:
            level = Level.UNKNOWN
        # Triton's answer is beside the level, not in it: torch without Triton is useful to many, and only the order of
        # candidates takes it into account.
        triton = self._compiles(triton_pin(build), gpu.cc)
        told = every if triton is None else (*every, triton)
        return Verdict(level, code, fit.required, fit.mode, triton.ok if triton else None, told)

    def _code(self, build: Build, cuda: str, gpu: Gpu) -> tuple[Level, str | None, tuple[Reason, ...]]:
        """Rules 2 to 5 and 7 for one GPU; many builds carry the same code."""
        known = build.known("code")
        # Without the version: consecutive releases of a variant carry the same list of architectures.
        kind = build.package if build.package in {_TORCH, *self._facts.contained} else ""
        key = (build.code, cuda, gpu, kind, known.evidence, known.source)
        if key not in self._codes:
            level, code, reasons = self._judge_code(build, cuda, gpu)
            self._codes[key] = level, code, tuple(reasons)
        return self._codes[key]

    def _judge_code(self, build: Build, cuda: str, gpu: Gpu) -> tuple[Level, str | None, list[Reason]]:
        """Judge the code of a build for a GPU; if it does not depend on torch, rule 5 covers any CUDA of its major."""
        cc = gpu.cc
        if cc is None:
            return Level.UNKNOWN, None, [Reason("sass", None, "the GPU, or its compute capability, is not known")]
        # Only where it denies: that the driver is not known is rule 1's to say.
        life = self._life(gpu)
        reasons = [life] if life.ok is False else []
        known = build.known("code")
        evidence, source = known.evidence.value, known.source
        if build.code is None:
            return Level.UNKNOWN, None, [*reasons, Reason("sass", None, "the GPU code in the build is not known")]
        # An empty list is a measurement (the wheel has no kernels), None is the absence of one; only the
        # latter is unknown.
        if not build.code:
            return Level.NATIVE, None, [*reasons, Reason("sass", True, "no GPU code of its own", evidence, source)]
        level, arch = self._facts.best_code(build.code, cc)
        if arch is None:
            text = f"no code for cc {cc} (it carries {' '.join(build.code)})"
            reasons.append(Reason("sass", False, text, evidence, source))
        elif arch.kind == "sass":
            reasons.append(Reason("sass", True, f"{arch.name} runs on cc {cc}", evidence, source))
        else:
            text = f"{arch.name} is compiled for cc {cc} by the driver"
            reasons.append(Reason("ptx", True, text, evidence, source))
            reasons.append(ptx_loads(cuda, self._lifted))
        # torch's wheels come with the libraries of exactly their toolkit. An extension uses whichever torch beside it
        # has, so it fails this rule only if no toolkit of its major supports the GPU.
        if build.package == _TORCH:
            reasons.append(self._facts.libraries_serve(cuda, cc))
        elif build.package in self._facts.contained:
            pass
        elif arch is not None and (denied := self._no_library_serves(cuda, cc)) is not None:
            reasons.append(denied)
        return level, arch.name if arch else None, reasons

    def _life(self, gpu: Gpu) -> Reason:
        """Rule 7."""
        if gpu not in self._lives:
            facts = self._facts
            self._lives[gpu] = can_exist(gpu, self._machine.driver, facts.architectures, facts.drivers)
        return self._lives[gpu]

    def _driver(self, cuda: str) -> DriverFit:
        """Rule 1, then rule 8."""
        if cuda not in self._fits:
            facts = self._facts
            alone = driver_runs(cuda, self._machine.driver, self._os, facts.toolkits, facts.floors)
            self._fits[cuda] = through_compat(alone, cuda, self._machine.driver, self._lifted)
        return self._fits[cuda]

    def _no_library_serves(self, cuda: str, cc: ComputeCapability) -> Reason | None:
        """Rule 5 where the libraries are those of torch, or whichever the user has of the build's CUDA major."""
        major = CudaVersion.parse(cuda).major
        facts = self._facts
        served = [facts.libraries_serve(t.version, cc) for t in facts.toolkits if t.cuda_version.major == major]
        return None if not served or any(reason.ok for reason in served) else served[-1]

    def _as_triton(self, build: Build, gpu: Gpu, host: Sequence[Reason]) -> Verdict:
        """Triton itself: what it compiles for a GPU runs there, or not."""
        reason = self._compiles(build.version, gpu.cc)
        # A Triton that the catalogue does not know must not pass silently: its own word decides, and there is none.
        told = (
            *host,
            reason or Reason("triton", None, f"whether Triton {build.version} supports the GPU is not known"),
        )
        if any(r.ok is False for r in told):
            level = Level.NONE
        else:
            level = Level.NATIVE if all(r.ok for r in told) else Level.UNKNOWN
        code = gpu.cc.sm if gpu.cc and level is Level.NATIVE else None
        return Verdict(level, code, None, None, reason.ok if reason else None, told)

    def _compiles(self, version: str | None, cc: ComputeCapability | None) -> Reason | None:
        """Rule 6; None if that Triton, or the GPU, is not known."""
        facts = self._facts
        release = facts.tritons.get(version) if version else None
        if release is None or cc is None:
            return None
        if (release.version, cc) not in self._tritons:
            said = triton_runs(release, cc, self._lifted, self._os, facts.toolkits, facts.floors)
            self._tritons[release.version, cc] = said
        return self._tritons[release.version, cc]
