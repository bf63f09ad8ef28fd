"""A Triton whose own ptxas does not serve the cards is given one out of a package."""

from __future__ import annotations

from itertools import product

import pytest

from envsolve import describe_target
from envsolve.facts.catalogue import Catalogue
from envsolve.formats.pylock import render
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.planning.rounds import assemblers
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import triton_runs
from envsolve.rules.nvidia.driver import can_exist
from tests.planning.worlds import chosen, codes
from tests.smallworld import NEW, World

CU12 = "nvidia-cuda-nvcc-cu12"
OURS = "TRITON_PTXAS_PATH"
BLACKWELL = "TRITON_PTXAS_BLACKWELL_PATH"


@pytest.mark.parametrize(
    ("triton", "targets", "package", "variables"),
    [
        # A card younger than the Triton: the first CUDA that knows it, and of that family the newest.
        ("3.5.1", ["GB10, driver 580.95.05"], f"{CU12}==12.9.*", [OURS]),
        ("3.4.0", ["B300, driver 580.95.05"], f"{CU12}==12.9.*", [OURS]),
        ("3.6.0", ["Thor, driver 580.95.05"], "nvidia-cuda-nvcc==13.5.*", [BLACKWELL]),
        # A driver older than the second ptxas: one of its family, for the cards that use the second alone.
        ("3.7.1", ["RTX 5090, driver 570.86.10"], f"{CU12}==12.9.*", [BLACKWELL]),
        ("3.9.0", ["H100, driver 550.54.15"], f"{CU12}==12.9.*", [BLACKWELL]),
        ("3.7.1", ["RTX 5090 + RTX 4090, driver 570.86.10"], f"{CU12}==12.9.*", [BLACKWELL]),
        ("3.3.1", ["A100, driver 470.82.01"], "nvidia-cuda-nvcc-cu11==11.8.*", [OURS]),
        # Several machines: what serves the one that is too new must not lose the one whose driver is too old.
        ("3.5.1", ["GB10, driver 580.95.05", "H100, driver 550.54.15"], f"{CU12}==12.9.*", [OURS]),
        ("3.5.1", ["GB10, driver 580.95.05", "V100, driver 550.54.15"], f"{CU12}==12.9.*", [OURS]),
        # Nothing to do, or nothing that would do.
        ("3.5.1", ["H100, driver 550.54.15"], None, []),
        ("3.5.1", ["H100"], None, []),
        ("3.5.1", ["no gpu"], None, []),
        ("3.5.1", ["GTX 1080 Ti, driver 580.95.05"], None, []),
        ("3.4.0", ["Thor, driver 580.95.05"], None, []),
        ("3.3.1", ["GB10, driver 580.95.05"], None, []),
        ("3.2.0", ["RTX 5090, driver 580.95.05"], None, []),
        ("2.3.1", ["A100, driver 470.82.01"], None, []),
        ("3.6.0", ["Thor, driver 580.95.05", "V100, driver 580.95.05"], "nvidia-cuda-nvcc==13.5.*", [BLACKWELL]),
        ("3.5.1", ["Thor, driver 580.95.05", "V100, driver 580.95.05"], None, []),
        ("1.0", ["GB10, driver 580.95.05"], None, []),
    ],
)
def test_which_ptxas_serves(triton: str, targets: list[str], package: str | None, variables: list[str]) -> None:
    catalogue = Catalogue()
    machines = [describe_target(target) for target in targets]
    found = list(assemblers(triton, machines, Facts.of(catalogue), catalogue.compilers))
    assert [str(need.requirement) for need in found[0].needs] == [package] if found else package is None
    assert (list(found[0].environment) if found else []) == variables


def test_over_the_whole_grid_a_ptxas_is_given_where_it_helps_and_nowhere_else() -> None:
    """Every Triton with every card on driver branches that serve it."""
    catalogue, given = Catalogue(), 0
    facts = Facts.of(catalogue)
    for release, cc, branch in product(catalogue.tritons, catalogue.architectures, catalogue.drivers[::5]):
        driver = Driver(branch.first, branch.cuda)
        gpu = Gpu(None, cc)
        if can_exist(gpu, driver, facts.architectures, facts.drivers).ok is not True or gpu.cc is None:
            continue
        machine = Machine(platform=Platform("linux", "x86_64"), driver=driver, gpus=(gpu,))
        before = triton_runs(release, gpu.cc, driver, "linux", facts.toolkits, facts.floors)
        for one in assemblers(release.version, [machine], facts, catalogue.compilers):
            given += 1
            after = triton_runs(one.release, gpu.cc, driver, "linux", facts.toolkits, facts.floors)
            assert (before.ok, after.ok) == (False, True), (release.version, cc, branch.branch)
            assert cc in release.targets
    assert given > 50


@pytest.fixture
def old_world(torch_world: World) -> World:
    """A torch for the newest cards whose Triton is older than they are, with the ptxas packages on the index."""
    for version in ("12.8.93", "12.9.86"):
        torch_world.default.wheel(CU12, version, tags="py3-none-manylinux_2_17_x86_64")
    return torch_world


def test_the_package_is_in_the_plan_and_in_its_lock(old_world: World) -> None:
    plan = old_world.plan("torch==2.9.1", target="GB10, driver 580.95.05, linux-x86_64")
    assert plan.status == "ok"
    assert chosen(plan)[CU12] == "12.9.86"
    assert plan.environment == {OURS: "{site_packages}/nvidia/cuda_nvcc/bin/ptxas"}
    assert "triton-limited" not in codes(plan)
    (told,) = (w.message for w in plan.warnings if w.code == "triton-assembler")
    assert told == (
        "Triton 3.5.1 compiles with ptxas 12.8, which does not know sm_121a; "
        f"the plan adds {CU12} 12.9.86, and {OURS} makes Triton use its ptxas"
    )
    assert {s.package: s.level for s in plan.support} == {"torch": "family", "triton": "native"}
    text = render(plan)
    assert f'name = "{CU12}"' in text
    assert f'{OURS} = "{{site_packages}}/nvidia/cuda_nvcc/bin/ptxas"' in text


def test_triton_alone_is_given_one_too(old_world: World) -> None:
    plan = old_world.plan("triton==3.5.1", target="GB10, driver 580.95.05, linux-x86_64")
    assert (plan.status, list(plan.environment)) == ("ok", [OURS])


def test_another_pair_that_works_goes_first(old_world: World) -> None:
    plan = old_world.plan("torch", target="GB10, driver 580.95.05, linux-x86_64")
    assert (chosen(plan)["torch"], plan.environment) == ("2.14.1 cu130", {})


def test_one_that_the_request_pins_holds(old_world: World) -> None:
    plan = old_world.plan("torch==2.9.1", f"{CU12}==12.8.*", target="GB10, driver 580.95.05, linux-x86_64")
    assert (plan.environment, chosen(plan)[CU12]) == ({}, "12.8.93")
    assert "triton-limited" in codes(plan)


def test_where_none_can_be_had_the_plan_says_so_as_ever(torch_world: World) -> None:
    plan = torch_world.plan("torch==2.9.1", target="GB10, driver 580.95.05, linux-x86_64")
    assert (plan.status, plan.environment) == ("ok", {})
    assert "triton-limited" in codes(plan)


def test_what_lies_in_the_range_of_the_request_decides(old_world: World) -> None:
    """The newest torch of the range whose pair works, and the newest of all where none does."""
    old_world.build("torch", "2.10.0", "cu128", requires=["filelock", "triton==3.5.1"], code=NEW)
    plan = old_world.plan("torch<2.11", target="GB10, driver 580.95.05, linux-x86_64")
    assert (chosen(plan)["torch"], list(plan.environment)) == ("2.10.0 cu128", [OURS])
