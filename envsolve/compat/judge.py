"""The conjunction of the rules: a build on a machine -> a verdict for each GPU."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import Requirement

from envsolve.catalogue.model import Build
from envsolve.compat.code import best_code, libraries_serve
from envsolve.compat.driver import driver_runs, ptx_loads
from envsolve.compat.facts import Facts
from envsolve.compat.flavour import ANY
from envsolve.compat.life import can_exist
from envsolve.compat.platform import platform_fits, python_fits
from envsolve.compat.triton import triton_runs
from envsolve.compat.verdict import Level, Reason, Verdict
from envsolve.machine.model import Gpu, Machine


def judge(build: Build, machine: Machine, python: str | None, facts: Facts) -> tuple[Verdict, ...]:
    """One verdict per GPU of the machine; one for "no particular GPU" where it has none or they are not known."""
    host = [platform_fits(build.platform, machine.platform)]
    if python:
        host.append(python_fits(build.pythons, python))
    if build.cuda is None:
        return (_without_cuda(build, machine, host),)
    os = machine.platform.os if machine.platform else None
    fit = driver_runs(build.cuda, machine.driver, os, facts.toolkits, facts.floors)
    if machine.gpus == ():
        host.append(Reason("sass", False, "the machine has no NVIDIA GPU to run CUDA code on"))
        return (Verdict(Level.NONE, None, fit.required, None, None, (*host, fit.reason)),)
    found = []
    for gpu in machine.gpus or (Gpu(),):
        level, code, reasons = _code_on(build, gpu, machine, facts)
        triton = _triton_on(build, gpu, machine, facts)
        every = (*host, fit.reason, *reasons)
        if any(r.ok is False for r in every):
            level, code = Level.NONE, None
        elif any(r.ok is None for r in every):
            level = Level.UNKNOWN
        told = every if triton is None else (*every, triton)
        found.append(Verdict(level, code, fit.required, fit.mode, triton.ok if triton else None, told))
    return tuple(found)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that decides for a whole machine, or for several."""
    return max(verdicts, key=lambda v: (v.level.rank, v.triton is not True))


def _without_cuda(build: Build, machine: Machine, host: Sequence[Reason]) -> Verdict:
    """A build without CUDA code: a ``cpu`` one is right where there is no GPU, and never what a GPU machine wants."""
    reasons = list(host)
    if build.variant == ANY:
        pass
    elif machine.gpus:
        text = f"a CPU build: it runs nothing on {machine.gpus[0].label}"
        reasons.append(Reason("sass", False, text, build.evidence.value, build.source))
    elif machine.gpus is None:
        reasons.append(Reason("sass", None, "a CPU build, and whether the machine has a GPU is not known"))
    denied, open_ = (any(r.ok is answer for r in reasons) for answer in (False, None))
    level = Level.NONE if denied else Level.UNKNOWN if open_ else Level.NATIVE
    return Verdict(level, None, None, None, None, tuple(reasons))


def _code_on(build: Build, gpu: Gpu, machine: Machine, facts: Facts) -> tuple[Level, str | None, list[Reason]]:
    """Rules 2 to 5 and 7 for one GPU."""
    assert build.cuda is not None
    cc = gpu.cc
    if cc is None:
        return Level.UNKNOWN, None, [Reason("sass", None, "the GPU, or its compute capability, is not known")]
    # Only where it denies: that the driver is not known is rule 1's to say.
    life = can_exist(gpu, machine.driver, facts.architectures)
    reasons = [life] if life.ok is False else []
    evidence = (build.code_evidence or build.evidence).value
    if build.code is None:
        return Level.UNKNOWN, None, [*reasons, Reason("sass", None, "the GPU code in the build is not known")]
    level, arch = best_code(build.code, cc, facts.architectures)
    carried = " ".join(build.code)
    if arch is None:
        reasons.append(Reason("sass", False, f"no code for cc {cc} (it carries {carried})", evidence, build.source))
    elif arch.kind == "sass":
        reasons.append(Reason("sass", True, f"{arch.name} runs on cc {cc}", evidence, build.source))
    else:
        reasons.append(
            Reason("ptx", True, f"{arch.name} is compiled for cc {cc} by the driver", evidence, build.source)
        )
        reasons.append(ptx_loads(build.cuda, machine.driver))
    reasons.append(libraries_serve(build.cuda, cc, facts.toolkits, facts.architectures))
    return level, arch.name if arch else None, reasons


def triton_pin(build: Build) -> str | None:
    """The Triton version that a build pins, ``3.6.0``; None where it pins none."""
    for line in build.requires or ():
        if line.startswith(("triton=", "triton~", "triton (", "pytorch-triton=", "triton ")):
            specifier = next(iter(Requirement(line).specifier), None)
            return specifier.version if specifier else None
    return None


def _triton_on(build: Build, gpu: Gpu, machine: Machine, facts: Facts) -> Reason | None:
    pin, cc = triton_pin(build), gpu.cc
    release = facts.tritons.get(pin) if pin else None
    if release is None or cc is None:
        return None
    os = machine.platform.os if machine.platform else None
    return triton_runs(release, cc, machine.driver, os, facts.toolkits, facts.floors)
