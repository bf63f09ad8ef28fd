"""What the plan's builds can do on its GPUs, and the driver that they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from envsolve.catalogue.model import Build
from envsolve.compat.driver import driver_runs
from envsolve.compat.facts import Facts
from envsolve.compat.flavour import ANY
from envsolve.compat.forward import lifted
from envsolve.compat.judge import Judge
from envsolve.compat.triton import TRITON
from envsolve.compat.verdict import Verdict
from envsolve.compat.versions import numbers
from envsolve.machine.model import Gpu, Machine
from envsolve.plan import DriverNeed, Support
from envsolve.resolve.family import Option
from envsolve.resolve.solve import Solution

_RANK = {None: 0, "forward-compat": 1, "minor-version": 2, "full": 3}


class Judged(msgspec.Struct, frozen=True):
    """One chosen build on one GPU of one machine; an empty GPU stands for none, or for one that is not known."""

    build: Build
    machine: Machine
    gpu: Gpu
    verdict: Verdict


def judged_builds(solution: Solution, machines: Sequence[Machine], python: str, facts: Facts) -> tuple[Judged, ...]:
    """Every family build of a solution, on every GPU of every machine."""
    # A build without CUDA code has one verdict, however many GPUs the machine has: hence the lenient zip.
    judges = [(machine, Judge(machine, facts)) for machine in machines]
    return tuple(
        Judged(build, machine, gpu, verdict)
        for option in _options(solution)
        for build, (machine, judge) in zip(option.builds, judges, strict=True)
        for gpu, verdict in zip(machine.gpus or (Gpu(),), judge.verdicts(build, python), strict=False)
    )


def support_of(judged: Sequence[Judged]) -> tuple[Support, ...]:
    """The levels where something is known of the GPU code, equal lines told once; Triton's line: its kernels."""
    lines: dict[Support, None] = {}
    for one in judged:
        build, gpu, verdict = one.build, one.gpu, one.verdict
        if build.package != TRITON and (not build.code or build.variant == ANY):
            continue
        evidence = build.known("code").evidence.value
        name, cc = gpu.name or ("GPU" if gpu.compute_capability else "unknown GPU"), gpu.compute_capability
        lines[Support(build.package, name, cc, verdict.level.value, verdict.code, evidence)] = None
    return tuple(lines)


def driver_need(judged: Sequence[Judged]) -> DriverNeed | None:
    """The newest of the drivers that the builds ask for, and the least favourable mode among machines."""
    needs = []
    for one in judged:
        if one.build.cuda is not None and one.build.variant != ANY:
            have = one.machine.driver.version if one.machine.driver else None
            needs.append(DriverNeed(one.verdict.driver_required, one.verdict.driver_mode, have))
    return max(needs, key=lambda n: (numbers(n.required or "0"), -_RANK[n.mode]), default=None)


def driver_of_code(cuda: str, machines: Sequence[Machine], facts: Facts) -> DriverNeed | None:
    """What code that is compiled with the nvcc of a CUDA version needs of the drivers; the least favourable mode."""
    needs = []
    for machine in machines:
        os = machine.platform.os if machine.platform else None
        fit = driver_runs(cuda, lifted(machine, facts.forward), os, facts.toolkits, facts.floors)
        needs.append(DriverNeed(fit.required, fit.mode, machine.driver.version if machine.driver else None))
    return max(needs, key=lambda need: -_RANK[need.mode], default=None)


def _options(solution: Solution) -> Iterator[Option]:
    for chosen in solution.chosen.values():
        if chosen.candidate.option is not None:
            yield chosen.candidate.option
