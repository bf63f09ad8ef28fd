"""What the plan's builds can do on its GPUs, and the driver that they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envsolve.catalogue.model import Build
from envsolve.compat.facts import Facts
from envsolve.compat.judge import Judge
from envsolve.compat.triton import TRITON
from envsolve.compat.verdict import Verdict
from envsolve.compat.versions import numbers
from envsolve.machine.model import Gpu, Machine
from envsolve.plan import DriverNeed, Support
from envsolve.resolve.family import Option
from envsolve.resolve.solve import Solution


def verdicts_of(
    solution: Solution, machines: Sequence[Machine], python: str, facts: Facts
) -> Iterator[tuple[Build, Machine, Gpu, Verdict]]:
    """Every family build of a solution of which something is known for GPUs, on every GPU of every machine."""
    for option in _options(solution):
        for build, machine in zip(option.builds, machines, strict=True):
            if build.package != TRITON and (build.cuda is None or build.code is None):
                continue
            gpus = machine.gpus or (Gpu(),)
            for gpu, verdict in zip(gpus, Judge(machine, facts).verdicts(build, python), strict=True):
                yield build, machine, gpu, verdict


def support_of(solution: Solution, machines: Sequence[Machine], python: str, facts: Facts) -> tuple[Support, ...]:
    """The levels, equal lines told once; Triton's line says whether its kernels run."""
    lines: dict[Support, None] = {}
    for build, _, gpu, verdict in verdicts_of(solution, machines, python, facts):
        evidence = (build.code_evidence or build.evidence).value
        name, cc = gpu.name or "unknown GPU", gpu.compute_capability
        lines[Support(build.package, name, cc, verdict.level.value, verdict.code, evidence)] = None
    return tuple(lines)


def driver_need(solution: Solution, machines: Sequence[Machine], python: str, facts: Facts) -> DriverNeed | None:
    """The newest of the drivers that the builds ask for, and the least favourable mode among machines."""
    needs: list[DriverNeed] = []
    for option in _options(solution):
        for build, machine in zip(option.builds, machines, strict=True):
            if build.cuda is None:
                continue
            have = machine.driver.version if machine.driver else None
            needs += [
                DriverNeed(v.driver_required, v.driver_mode, have)
                for v in Judge(machine, facts).verdicts(build, python)
            ]
    rank = {"minor-version": 1, "full": 2, None: 0, "forward-compat": 1}
    return max(needs, key=lambda n: (numbers(n.required or "0"), -rank[n.mode]), default=None)


def _options(solution: Solution) -> Iterator[Option]:
    for chosen in solution.chosen.values():
        if chosen.candidate.option is not None:
            yield chosen.candidate.option
