"""The verdict of the rules on a build and a machine; the rules for GPU code are looked up by the GPUs' vendor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec
from msgspec.structs import replace

from envsolve.facts.builds import ANY, Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.files import FAST_PATHS
from envsolve.facts.hardware import Architecture, DriverBranch, branch_of
from envsolve.machine.model import Accelerator, Driver, Gpu, Machine, Platform
from envsolve.rules.nvidia import Facts, Nvidia
from envsolve.rules.nvidia.code import TRITON, best_code
from envsolve.rules.nvidia.driver import own_cuda
from envsolve.rules.platform import assumed, libc_fits, platform_fits, python_fits
from envsolve.rules.verdict import FastPath, Level, Reason, Verdict
from envsolve.values import CudaVersion, PythonVersion, Variant


class VendorRules(Protocol):
    """The rules of one vendor, for one machine."""

    def verdicts(self, build: Build, host: Sequence[Reason]) -> tuple[Verdict, ...]:
        """Judge a build that has code for the vendor's accelerators, or is Triton.

        Args:
            build: The build.
            host: The reasons of the vendor-neutral rules, which are part of every verdict.

        Returns:
            One verdict per accelerator; a single one for none in particular if it has none, or they are unknown.
        """


#: The rules by vendor. If a machine has accelerators of several vendors, those of the first listed here are judged:
#: an environment has builds for one vendor.
VENDORS: Mapping[str, Callable[[Machine, Facts], VendorRules]] = {"nvidia": Nvidia}


# The verdicts of one judge on the builds of torch take 2 MB.
_KEPT_JUDGES = 32
_KEPT_VERDICTS = 10_000


class Judge:
    """The rules applied to one machine; facts that depend only on the machine are computed once for all builds."""

    def __init__(self, machine: Machine, facts: Facts) -> None:
        self._machine = machine
        self._judged: dict[tuple[int, str | None], tuple[Build, tuple[Verdict, ...]]] = {}
        present = {accelerator.vendor for accelerator in machine.accelerators or ()}
        # A machine without accelerators, or with unknown ones, is judged by the vendor that all known builds are for.
        vendor = next((name for name in VENDORS if name in present), None if present else next(iter(VENDORS)))
        self._rules = VENDORS[vendor](machine, facts) if vendor else Unjudged(machine)

    def verdicts(self, build: Build, python: str | None) -> tuple[Verdict, ...]:
        """One verdict per accelerator; one for none in particular if the machine has none or they are not known."""
        # By the record itself, which the answer keeps alive: to compare it would cost more than to judge it.
        known = self._judged.get((id(build), python))
        if known is None:
            if len(self._judged) >= _KEPT_VERDICTS:  # many are of builds that only one question knows
                self._judged.clear()
            self._judged[id(build), python] = known = build, self._verdicts(build, python)
        return known[1]

    def _verdicts(self, build: Build, python: str | None) -> tuple[Verdict, ...]:
        host = self._host(build, python)
        triton = build.package == TRITON and self._machine.accelerators != ()
        if triton or (vendor_of(build) is not None and build.variant != ANY):
            return self._rules.verdicts(build, host)
        return (_without_code(build, self._machine, host),)

    def installs(self, build: Build, python: str | None) -> bool:
        """Whether a build can be installed at all, whatever its GPU code does there."""
        return all(reason.ok for reason in self._host(build, python))

    def _host(self, build: Build, python: str | None) -> tuple[Reason, ...]:
        """Rule 11."""
        return _installable(
            self._machine.platform, build.made_for, build.libc, build.pythons, build.requires_python, python
        )


def judge_of(machine: Machine, facts: Facts) -> Judge:
    """The judge of a machine, shared by all questions of this process about equal machines."""
    # Machines that are read twice are equal, not the same. To write one down takes 10 us, to judge torch 30 ms.
    key = msgspec.json.encode(machine)
    judge: Judge | None = facts.judges.get(key)
    if judge is None:
        if len(facts.judges) >= _KEPT_JUDGES:
            facts.judges.pop(next(iter(facts.judges)), None)
        facts.judges[key] = judge = Judge(machine, facts)
    return judge


class Unjudged:
    """Accelerators of vendors without rules: their own builds are unknown, those of other vendors do not run."""

    def __init__(self, machine: Machine) -> None:
        self._accelerators = machine.accelerators or ()

    def verdicts(self, build: Build, host: Sequence[Reason]) -> tuple[Verdict, ...]:
        """See :class:`VendorRules`."""
        return tuple(_conjunction((*host, self._reason(build, accelerator))) for accelerator in self._accelerators)

    def _reason(self, build: Build, accelerator: Accelerator) -> Reason:
        vendor = vendor_of(build)
        if build.variant != ANY and vendor != accelerator.vendor:
            text = f"code of variant {build.variant} does not run on {accelerator.label}"
            return Reason("accelerator", False, text, build.evidence.value, build.source)
        return Reason(
            "accelerator", None, f"envsolve has no rules for {accelerator.label}, so it cannot judge builds for it"
        )


def vendor_of(build: Build) -> str | None:
    """The vendor whose accelerators a build has code for; None for CPU builds and builds for all variants."""
    variant = _variant(build.variant)
    # A conda build may be for an unknown CUDA version, so that its variant has no name.
    return variant.vendor if variant else "nvidia" if build.cuda else None


_variant = lru_cache(maxsize=256)(Variant.parse)


@lru_cache(maxsize=8192)
def _installable(
    platform: Platform | None,
    tag: str,
    libc: str | None,
    pythons: tuple[str, ...],
    requires_python: str | None,
    python: str | None,
) -> tuple[Reason, ...]:
    """Rule 11, whose answers many builds and many machines have in common."""
    reasons = [platform_fits(tag, platform)]
    if libc and not (platform and platform.os == "windows"):
        reasons.append(libc_fits(libc, platform))
    if python:
        reasons.append(python_fits(pythons, python, requires_python))
    return tuple(reasons)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that decides for a whole machine, or for several."""
    return max(verdicts, key=lambda v: (v.level.rank, v.triton is not True))


def _without_code(build: Build, machine: Machine, host: Sequence[Reason]) -> Verdict:
    """Judge a build without GPU code: a ``cpu`` build fits a machine without a GPU, and never one with a GPU."""
    accelerators = machine.accelerators
    if build.variant == ANY or accelerators == ():
        return _conjunction(host)
    if accelerators is None:
        reason = Reason("sass", None, "a CPU build; it is not known whether the machine has a GPU")
    elif any(one.vendor in VENDORS for one in accelerators):
        text = f"a CPU build: it does not use {accelerators[0].label}"
        reason = Reason("sass", False, text, build.evidence.value, build.source)
    else:
        text = f"a CPU build; envsolve has no rules to judge whether another build would run on {accelerators[0].label}"
        reason = Reason("accelerator", None, text)
    return _conjunction((*host, reason))


def _conjunction(reasons: Sequence[Reason]) -> Verdict:
    """The verdict of rules that are not about GPU code."""
    answers = {reason.ok for reason in reasons}
    level = Level.NONE if False in answers else Level.UNKNOWN if None in answers else Level.NATIVE
    return Verdict(level, None, None, None, None, tuple(reasons))


# The machine that builds are judged on: what a description leaves open is assumed, what contradicts itself is settled.
# :mod:`envsolve.planning.warnings` reports each of these steps to the user.


def as_judged(machine: Machine, variant: str | None, drivers: Sequence[DriverBranch]) -> Machine:
    """A machine with a system, with its driver's own CUDA, and without GPUs if the CPU variant was requested."""
    known = replace(machine, platform=assumed(machine.platform), driver=own_cuda(machine.driver, drivers))
    if variant == "cpu":
        return replace(known, gpus=(), accelerators=())
    # A driver without a GPU is a login node or a container whose GPUs are hidden: which ones it runs on is not known.
    hidden = known.gpus == () and not known.accelerators and known.driver is not None
    return replace(known, gpus=None, accelerators=None) if hidden else known


# Drivers before R525 (CUDA 12.0) have had no updates since R470 ended in July 2024, and for drivers that only run CUDA
# 11 no torch has been published since 2.7. Source: NVIDIA, "Data Center Drivers", life of the branches.
_OLDEST_ASSUMED = CudaVersion(12, 0)


def with_assumed_driver(
    machine: Machine, architectures: Mapping[str, Architecture], drivers: Sequence[DriverBranch]
) -> Machine:
    """A machine with the oldest driver that may be there, if its driver is not known but its GPUs are.

    A build that runs with this driver runs with every newer one. The driver has only a CUDA version, because the driver
    versions of Windows and Linux differ.
    """
    driver = machine.driver or Driver()
    known = [architectures.get(gpu.compute_capability or "") for gpu in machine.gpus or ()]
    if not known or not all(known) or driver.version or driver.cuda:
        return machine
    firsts = [branch_of(one.first_driver, drivers) for one in known if one and one.first_driver]
    lasts = [branch_of(one.last_branch, drivers) for one in known if one and one.last_branch]
    oldest = max([_OLDEST_ASSUMED, *(branch.cuda_version for branch in firsts if branch)])
    cuda = min([oldest, *(branch.cuda_version for branch in lasts if branch)])
    return replace(machine, driver=replace(driver, cuda=str(cuda)))


def python_of(machines: Sequence[Machine]) -> str | None:
    """The Python that builds are judged for by default: the first that a machine names, ``3.12``."""
    return next((str(PythonVersion.parse(machine.python)) for machine in machines if machine.python), None)


def fast_paths_of(build: Build, gpu: Gpu, facts: Facts, catalogue: Catalogue) -> Iterator[FastPath]:
    """What the kernels in a wheel offer on a GPU that runs it; nothing if the wheel was not measured for them."""
    if gpu.cc is None or not catalogue.has(FAST_PATHS):
        return
    for known in catalogue.records(FAST_PATHS):
        if (known.package, known.version, known.variant) == (build.package, build.version, build.variant):
            _, arch = best_code(known.code, gpu.cc, facts.architectures)
            yield FastPath(build.package, gpu.label, known.path, arch.name if arch else None, known.code)
