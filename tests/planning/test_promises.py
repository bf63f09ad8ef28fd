"""The two promises, over the grid of the catalogue's cards and drivers: never a wrong yes, never a bare no.

By default a sample of the grid; `pytest -m grid` plans for a machine of every class in it. Machines are of one class
where system, compute capability and the verdict on every kind of build are the same: the plan follows from these.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from functools import cache
from itertools import product

import pytest

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.planning.builds import BuildLine, list_builds
from envsolve.planning.plan import Plan
from envsolve.rules.judge import Judge, as_judged
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import TRITON, triton_pin
from envsolve.rules.verdict import Level
from tests.planning.questions import Questions

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)
SYSTEMS = (Platform("linux", "x86_64", "glibc 2.39"), Platform("linux", "aarch64", "glibc 2.39"))
#: One model for each compute capability and kind of card: nothing else of a card is judged.
KINDS = {(model.compute_capability, model.data_centre): model.name for model in CATALOGUE.gpus}
CARDS = tuple(Gpu(name, cc) for (cc, _), name in KINDS.items())
DRIVERS = (
    None,
    Driver("999.1"),
    *(Driver(branch.first, branch.cuda) for branch in CATALOGUE.drivers),
    # What nvidia-smi says in a container with a compat libcuda, and machines that have one.
    Driver("550.54.15", "13.0"),
    Driver("535.104.05", "12.2", "13.0"),
    Driver("570.86.15", "12.8", "13.1"),
    Driver("580.95.05", "13.0", "12.4"),
)
#: Warnings that tell how to find out what makes a plan unknown.
TELLING = {"driver-unknown", "gpu-hidden", "gpu-unknown", "not-judged", "build-inferred"}


def grid() -> list[Machine]:
    """Every card on every driver, on both systems; the machines that cannot exist are among them."""
    machines = [Machine(platform=s, driver=d, gpus=(c,)) for s, c, d in product(SYSTEMS, CARDS, DRIVERS)]
    no_card: list[tuple[Gpu, ...] | None] = [(), None, (Gpu("a card of tomorrow"),)]
    return machines + [Machine(platform=s, driver=DRIVERS[-1], gpus=g) for s, g in product(SYSTEMS, no_card)]


@cache
def kinds(arch: str) -> tuple[Build, ...]:
    """Torch and Triton builds of an architecture, one for each kind of code, CUDA and Triton."""
    found: dict[object, Build] = {}
    for build in (*CATALOGUE.builds("torch"), *CATALOGUE.builds(TRITON)):
        if build.platform.endswith(arch) and (build.cuda or build.package == TRITON):
            own = build.version if build.package == TRITON else triton_pin(build)
            found.setdefault((build.package, build.code, build.cuda, own), build)
    return tuple(found.values())


def class_of(machine: Machine) -> Hashable:
    judge = Judge(as_judged(machine, None, CATALOGUE.drivers), FACTS)
    platform, cards = machine.platform or Platform(), machine.gpus
    verdicts = (v for build in kinds(platform.arch or "") for v in judge.verdicts(build, None))
    said = tuple((v.level, v.code, v.driver_required, v.driver_mode, v.triton) for v in verdicts)
    return platform.arch, cards is None, tuple(card.compute_capability for card in cards or ()), said


@cache
def classes() -> tuple[tuple[Machine, ...], ...]:
    found: dict[Hashable, list[Machine]] = {}
    for machine in grid():
        found.setdefault(class_of(machine), []).append(machine)
    return tuple(map(tuple, found.values()))


def sample(count: int) -> list[Machine]:
    whole = grid()
    return [*random.Random(count).sample(whole, count), *whole[-6:]]


MACHINES = [
    pytest.param(lambda: sample(14), id="sample"),
    pytest.param(lambda: [first for first, *_ in classes()], id="classes", marks=pytest.mark.grid),
]


def lines(plan: Plan, machine: Machine) -> list[BuildLine]:
    """What `builds` says of every torch build on the plan's machine and Python."""
    return list(list_builds("torch", [machine], plan.python, CATALOGUE).builds)


def wrong(plan: Plan, machine: Machine) -> Iterator[str]:
    """What of a plan for torch breaks a promise."""
    codes = {caution.code for caution in plan.warnings}
    if plan.status == "impossible":
        if not plan.conflict:
            yield "refused without a reason"
        if not plan.remedies:
            yield "refused without a way out"
        if "cannot exist" not in plan.conflict[0].fact and any(usable(line, machine) for line in lines(plan, machine)):
            yield "refused, and builds lists one that runs"
        return
    if plan.status == "unknown" and not any(c.code in TELLING and c.remedy for c in plan.warnings):
        yield "unknown, and nothing says how to find out"
    judge = Judge(as_judged(machine, None, CATALOGUE.drivers), FACTS)
    for package in plan.packages:
        for build in CATALOGUE.builds(package.name):
            if package.filename in {build.filename(python) for python in build.pythons}:
                none = any(v.level is Level.NONE for v in judge.verdicts(build, plan.python))
                if none and (package.name != TRITON or "triton-limited" not in codes):
                    yield f"{package.filename} does not run"
    torch = next(package for package in plan.packages if package.name == "torch")
    told = {
        (line.gpu, line.verdict, line.driver_required)
        for line in lines(plan, machine)
        if line.version + line.local == torch.version and line.variant == torch.variant
    }
    levels = {s.level for s in plan.support if s.package == "torch"}
    if levels and levels != {verdict for _, verdict, _ in told}:
        yield f"{levels} here, and {told} in builds"
    if plan.driver and plan.driver.required not in {required for _, _, required in told}:
        yield f"driver {plan.driver.required} here, and {told} in builds"


def usable(line: BuildLine, machine: Machine) -> bool:
    """A build that is an answer: with CUDA where there may be a card, without where there is none."""
    return line.verdict != "none" and (line.variant == "cpu") is (machine.gpus == ())


@pytest.mark.parametrize("machines", MACHINES)
def test_a_plan_holds_what_it_promises(ask: Questions, machines: object) -> None:
    assert callable(machines)
    broken = []
    for machine in machines():
        plan = ask.plan_for([machine], "torch")
        broken += [(what, machine.driver, machine.gpus) for what in wrong(plan, machine)]
    assert broken == []


@pytest.mark.grid
def test_machines_of_a_class_get_the_same_plan(ask: Questions) -> None:
    several = [members for members in classes() if len(members) > 1]
    for first, *_, last in random.Random(0).sample(several, 40):
        one, other = (ask.plan_for([machine], "torch") for machine in (first, last))
        assert (one.status, one.cuda, one.packages) == (other.status, other.cuda, other.packages), (first, last)
