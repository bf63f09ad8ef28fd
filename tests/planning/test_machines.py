"""Several machines: the one plan that serves all, who costs it something, and the fewest plans where none does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from envsolve.machine.model import Accelerator, Gpu, Machine, Platform
from envsolve.packages.requirement_files import read_requirements
from envsolve.planning.groups import Plans, make_plans
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from tests.planning.questions import Questions
from tests.planning.worlds import chosen, codes
from tests.smallworld import NEW, OLD, World

P100, RTX = "P100, driver 580.95.05", "RTX 5090, driver 580.95.05"
V100, H100 = "V100, driver 580.95.05", "H100, driver 580.95.05"
GH200 = "GH200, driver 580.95.05, linux-aarch64"


def groups(world: World, targets: Sequence[str], *requirements: str) -> Plans:
    machines = [world.machine(target) for target in targets]
    with world.client() as client:
        return make_plans(read_requirements(requirements), machines, Request(), world.catalogue(), client)


def binding(plan: Plan) -> list[str]:
    return [caution.message for caution in plan.warnings if caution.code == "machine-binds"]


def torches(plans: Plans) -> list[tuple[str, int]]:
    """The torch of each plan, and for how many machines it is."""
    return [(chosen(plan)["torch"], len(plan.machines)) for plan in plans.plans]


def test_the_machine_that_costs_something_is_named_with_what_it_costs(torch_world: World) -> None:
    torch_world.build("torch", "2.15.0", "cu130", requires=["filelock", "triton==3.8.0"], code=NEW)
    machines = [torch_world.machine(t) for t in (H100, "H100, driver 535.104.05")]
    plan = torch_world.plan_for(machines, "torch")
    assert chosen(plan)["torch"] == "2.14.1+cu126 cu126"
    assert binding(plan) == [
        "without NVIDIA H100 (cc 9.0), driver 535.104.05, torch 2.15.0 [cu130] would run on "
        "NVIDIA H100 (cc 9.0), driver 580.95.05"
    ]
    assert binding(torch_world.plan_for(machines, "torch<2.15")) == [], "the request, too, keeps it from the others"


def test_a_machine_without_working_triton_is_named(torch_world: World) -> None:
    machines = [torch_world.machine(t) for t in ("P100, driver 535.104.05", "H100, driver 535.104.05")]
    assert binding(torch_world.plan_for(machines, "torch")) == [
        "without Tesla P100 (cc 6.0), torch 2.14.1 [cu126] with its Triton would run on NVIDIA H100 (cc 9.0)"
    ]


def test_machines_that_bind_together_are_named_together(torch_world: World) -> None:
    torch_world.build("torch", "2.15.0", "cu130", requires=["filelock", "triton==3.8.0"], code=NEW)
    old = [torch_world.machine(f"{card}, driver 535.104.05") for card in ("H100", "A100")]
    (message,) = binding(torch_world.plan_for([*old, torch_world.machine(H100)], "torch"))
    assert message.startswith("without NVIDIA H100 (cc 9.0), driver 535.104.05 and NVIDIA A100 (cc 8.0)")


def test_machines_that_need_the_same_cost_nothing(torch_world: World) -> None:
    machines = [torch_world.machine(t) for t in (H100, RTX)]
    plan = torch_world.plan_for(machines, "torch")
    assert chosen(plan)["torch"] == "2.14.1 cu130"
    assert "machine-binds" not in codes(plan)


def test_equal_machines_are_one_kind_and_all_in_the_plan(torch_world: World) -> None:
    machine = torch_world.machine(H100)
    named = [replace(machine, gpus=(Gpu("NVIDIA H100", "9.0", uuid=f"GPU-{n}"),)) for n in range(3)]
    plan = torch_world.plan_for(named, "torch")
    assert plan.machines == tuple(named)
    assert len(plan.support) == 2


def test_what_no_plan_serves_together_is_told_with_who_to_leave_out(torch_world: World) -> None:
    plan = torch_world.plan_for([torch_world.machine(t) for t in (P100, RTX, H100)], "torch")
    facts = [fact.fact for fact in plan.conflict]
    assert plan.status == "impossible"
    assert any("Tesla P100" in fact for fact in facts) and any("RTX 5090" in fact for fact in facts)
    assert not any("NVIDIA H100" in fact for fact in facts), "the conflict is irreducible"
    assert [(remedy.text, remedy.unlocks) for remedy in plan.remedies] == [
        (
            "plan separately for Tesla P100 (cc 6.0) (--allow-groups)",
            "torch 2.14.1 [cu130] on the other 2 kinds of machines",
        ),
        (
            "plan separately for NVIDIA GeForce RTX 5090 (cc 12.0) (--allow-groups)",
            "torch 2.14.1 [cu126] on the other 2 kinds of machines",
        ),
        ("use the conda-forge build (--manager conda)", "pytorch 2.13.0 [cu129]"),
        (
            "compile torch 2.11.0 from source: nvcc 12.8, gcc 13, TORCH_CUDA_ARCH_LIST=6.0;9.0;12.0",
            "code for sm_60 sm_90 sm_120, if the sources still compile for it",
        ),
    ]


def test_a_driver_upgrade_is_for_the_machine_that_needs_it(torch_world: World) -> None:
    machines = [torch_world.machine(t) for t in ("H100, driver 610.43.02", "RTX 4090, driver 550.54.15")]
    plan = torch_world.plan_for(machines, "torch", cuda="cu130")
    assert [fact.fact for fact in plan.conflict][:2] == [
        "the CUDA variant cu130 was requested",
        "a machine has driver 550.54.15",
    ]
    assert any(
        remedy.text.startswith("install driver 580.65.06")
        and remedy.text.endswith("RTX 4090 (cc 8.9), driver 550.54.15")
        for remedy in plan.remedies
    )


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ((H100, RTX), [("2.14.1 cu130", 2)]),
        ((P100, RTX), [("2.14.1+cu126 cu126", 1), ("2.14.1 cu130", 1)]),
        # V100 and H100 could share either's plan; with the P100, and with the RTX 5090, they lose nothing.
        ((P100, H100, RTX, V100, H100), [("2.14.1+cu126 cu126", 2), ("2.14.1 cu130", 3)]),
        ((P100, GH200), [("2.14.1+cu126 cu126", 1), ("2.14.1 cu130", 1)]),
    ],
)
def test_the_fewest_plans_that_serve_all(torch_world: World, targets: tuple[str, ...], expected: list[object]) -> None:
    for version, triton in (("2.14.1", "3.8.0"),):
        platform = "manylinux_2_28_aarch64"
        requires = ["filelock", f"triton=={triton}"]
        torch_world.build("torch", version, "cu130", requires=requires, code=("sm_90",), platform=platform)
        torch_world.build("triton", triton, "any", platform=platform)
    made = groups(torch_world, targets, "torch")
    assert torches(made) == expected
    assert made.unserved == ()


def test_what_no_published_build_serves_is_named_and_the_rest_planned(torch_world: World) -> None:
    made = groups(torch_world, (P100, "K80, driver 470.256.02", RTX, "RTX 5090, driver 560.35.03"), "torch")
    assert torches(made) == [("2.14.1+cu126 cu126", 1), ("2.14.1 cu130", 1)]
    assert [plan.status for plan in made.unserved] == ["impossible", "impossible"]
    assert "Tesla K80" in made.unserved[0].conflict[0].fact
    assert "cannot exist" in made.unserved[1].conflict[0].fact


def test_machines_of_several_systems_have_files_of_their_own(world: World) -> None:
    world.default.wheel("lib", "1.0", tags="cp312-cp312-manylinux_2_17_x86_64")
    world.default.wheel("lib", "1.0", tags="cp312-cp312-manylinux_2_17_aarch64")
    made = groups(world, (H100, GH200, V100), "lib")
    assert [(p.packages[0].filename or "").rsplit("_", 1)[-1] for p in made.plans] == ["64.whl", "aarch64.whl"]
    assert [len(plan.machines) for plan in made.plans] == [2, 1]


def test_a_machine_without_a_file_of_an_ordinary_package_is_unserved(torch_world: World) -> None:
    lib = torch_world.default
    lib.wheel("lib", "2.0", tags="cp312-cp312-manylinux_2_35_x86_64", upload_time="2024-01-01T00:00:00Z")
    made = groups(torch_world, (H100, f"{V100}, glibc 2.28", f"{RTX}, glibc 2.35"), "torch", "lib")
    assert torches(made) == [("2.14.1 cu130", 2)]
    assert [plan.machines[0].platform and plan.machines[0].platform.libc for plan in made.unserved] == ["glibc 2.28"]


def test_what_stands_without_torch_divides_machines_too(world: World) -> None:
    world.build("cupy-cuda12x", "1.0", "cu126", code=OLD)
    world.build("cupy-cuda12x", "2.0", "cu128", code=("sm_120",))
    made = groups(world, (V100, RTX, H100, "A100, driver 535.104.05"), "cupy-cuda12x")
    assert [(chosen(plan)["cupy-cuda12x"], len(plan.machines)) for plan in made.plans] == [
        ("1.0 cu126", 3),
        ("2.0 cu128", 1),
    ]


def test_a_companion_divides_machines(torch_world: World) -> None:
    torch_world.build("vllm", "1.0", "cu126", code=OLD, torch="==2.14.*")
    torch_world.build("vllm", "2.0", "cu130", code=("sm_120",), torch="==2.14.*")
    made = groups(torch_world, (V100, RTX, H100), "vllm")
    assert [(chosen(plan)["vllm"], len(plan.machines)) for plan in made.plans] == [("1.0 cu126", 2), ("2.0 cu130", 1)]


def test_no_machine_is_lost(torch_world: World) -> None:
    targets = (P100, RTX, H100, V100, GH200, "K80, driver 470.256.02")
    made = groups(torch_world, targets, "torch")
    told: list[Machine] = [machine for plan in (*made.plans, *made.unserved) for machine in plan.machines]
    assert len(told) == len(targets)
    assert all(torch_world.machine(target) in told for target in targets)


def test_a_machine_with_another_vendors_gpu_gets_no_certain_plan(torch_world: World) -> None:
    machine = replace(
        torch_world.machine("no gpu"), accelerators=(Accelerator("amd", "Radeon RX 7900 XTX", "gfx1100"),)
    )
    plan = torch_world.plan_for([machine], "torch")
    assert (plan.status, plan.cuda) == ("unknown", "cpu")
    assert "accelerator-not-judged" in codes(plan)
    assert torch_world.plan_for([machine], "torch", cuda="cpu").status == "ok"


@pytest.mark.parametrize(
    ("target", "requirement", "cuda", "status", "variant"),
    [
        ("no gpu, driver 580.95.05, linux-x86_64, glibc 2.39", "torch", None, "unknown", "cu132"),
        ("no gpu, driver 580.95.05, linux-x86_64, glibc 2.39", "torch", "cpu", "ok", "cpu"),
        ("no gpu, linux-x86_64, glibc 2.39", "torch", None, "ok", "cpu"),
        ("no gpu, linux-x86_64, glibc 2.39", "xformers", None, "unknown", "cu132"),
    ],
)
def test_a_gpu_out_of_sight_is_asked_for(
    ask: Questions, target: str, requirement: str, cuda: str | None, status: str, variant: str
) -> None:
    plan = ask.plan_for([ask.machine(target)], requirement, cuda=cuda)
    assert (plan.status, plan.cuda) == (status, variant)
    assert ("gpu-hidden" in {warning.code for warning in plan.warnings}) is (status == "unknown")


@pytest.mark.parametrize(("tag", "needed"), [("manylinux_2_34_x86_64", "2.34"), ("manylinux2014_x86_64", "2.28")])
def test_an_unknown_libc_is_assumed_to_be_what_the_plan_needs(torch_world: World, tag: str, needed: str) -> None:
    torch_world.build("vllm", "0.9", "cu130", platform=tag, requires=["torch==2.14.1"], torch="==2.14.1", code=NEW)
    machine = torch_world.machine(H100)
    unknown = replace(machine, platform=Platform("linux", "x86_64"))
    plan = torch_world.plan_for([unknown], "vllm")
    (text,) = (warning.message for warning in plan.warnings if warning.code == "libc-unknown")
    assert text.endswith(f"the plan assumes glibc {needed} or newer")
