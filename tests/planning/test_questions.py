"""Questions that people ask, answered from the project's own catalogue: the choice, the reason, the cheapest way out.

The torch family is the catalogue's, its indexes out of reach; everything else is on a loopback index, one file a name.
"""

from __future__ import annotations

from envsolve.planning.builds import list_builds
from envsolve.planning.plan import Plan
from tests.planning.questions import Questions
from tests.planning.worlds import chosen

HERE = "python 3.12, linux-x86_64, glibc 2.35"


def torch(plan: Plan) -> str:
    assert plan.status == "ok", plan.conflict
    return chosen(plan)["torch"]


def facts(plan: Plan) -> list[str]:
    assert plan.status == "impossible"
    return [fact.fact for fact in plan.conflict]


def remedies(plan: Plan) -> dict[str, str]:
    assert plan.status == "impossible"
    return {remedy.text: remedy.unlocks for remedy in plan.remedies}


def binding(plan: Plan) -> list[str]:
    return [caution.message for caution in plan.warnings if caution.code == "machine-binds"]


# Which torch: one machine with several cards, and fleets.


def test_v100_and_rtx_5090_in_one_machine(ask: Questions) -> None:
    """cu128 has carried both from 2.8 to 2.10; before and after, one of them is missing."""
    assert torch(ask.plan(f"V100 + RTX 5090, driver 580.95.05, {HERE}", "torch")) == "2.10.0 cu128"


def test_v100_and_rtx_5090_in_two_machines(ask: Questions) -> None:
    plan = ask.plan([f"V100, driver 580.95.05, {HERE}", f"RTX 5090, driver 580.95.05, {HERE}"], "torch")
    assert torch(plan) == "2.10.0 cu128"
    v100, rtx = binding(plan)
    assert v100.startswith("without Tesla V100 (cc 7.0), torch 2.1")
    assert rtx.startswith("without NVIDIA GeForce RTX 5090 (cc 12.0), torch 2.1")
    assert "cu126" in rtx, "the V100 alone would keep cu126"


def test_p100_and_h100_on_driver_535(ask: Questions) -> None:
    plan = ask.plan([f"P100, driver 535.104.05, {HERE}", f"H100, driver 535.104.05, {HERE}"], "torch")
    assert torch(plan).endswith("cu126")
    assert {(s.compute_capability, s.level) for s in plan.support if s.package == "torch"} == {
        ("6.0", "native"),
        ("9.0", "native"),
    }
    assert plan.driver is not None and plan.driver.mode == "minor-version"
    (message,) = binding(plan)
    assert message.startswith("without Tesla P100") and "with its Triton" in message
    assert "triton-limited" in {caution.code for caution in plan.warnings}


def test_a100_on_driver_470_and_h100(ask: Questions) -> None:
    plan = ask.plan([f"A100, driver 470.256.02, {HERE}", f"H100, driver 580.95.05, {HERE}"], "torch")
    assert torch(plan) == "2.7.1+cu118 cu118"
    (message,) = binding(plan)
    assert message.startswith("without NVIDIA A100 (cc 8.0), driver 470.256.02, torch 2.")


def test_x86_64_and_aarch64(ask: Questions) -> None:
    targets = [f"H100, driver 580.95.05, {HERE}", "GH200, driver 580.95.05, python 3.12, linux-aarch64, glibc 2.35"]
    plan = ask.plan(targets, "torch")
    assert plan.status == "ok"
    assert {s.gpu for s in plan.support if s.package == "torch"} == {"NVIDIA H100", "NVIDIA GH200 480GB"}
    assert "several-systems" in {caution.code for caution in plan.warnings}
    old = ask.plan(targets, "torch<2.10", cuda="cu126")
    assert torch(old).endswith("cu126"), "the variant exists for both, off the default index"


def test_a_fleet_that_no_plan_serves_is_divided(ask: Questions) -> None:
    made = ask.groups([f"{card}, driver 580.95.05, {HERE}" for card in ("P100", "RTX 5090", "H100", "V100")], "torch")
    assert [[gpu.name for m in plan.machines for gpu in m.gpus or ()] for plan in made.plans] == [
        ["Tesla P100", "Tesla V100"],
        ["NVIDIA GeForce RTX 5090", "NVIDIA H100"],
    ]
    assert made.unserved == ()


# Why not: one true reason, and the cheapest way out.


def test_an_old_torch_on_an_a100_is_the_one_whose_libraries_know_it(ask: Questions) -> None:
    target = "A100, driver 535.104.05, linux-x86_64, glibc 2.35"
    plan = ask.plan(target, "torch==1.7.1")
    assert (torch(plan), plan.python) == ("1.7.1+cu110 cu110", "3.9")
    for line in list_builds("torch", [ask.machine(target)], None, ask.catalogue).builds:
        if line.version == "1.7.1" and line.variant in ("cu101", "cu102"):
            assert line.verdict == "none"
            assert [reason.ok for reason in line.reasons if reason.rule == "libraries"] == [False]
    refused = ask.plan(target, "torch==1.7.1", cuda="cu102")
    assert any("the libraries of CUDA 10.2 (sm_30 to sm_75) do not support cc 8.0" in fact for fact in facts(refused))
    assert remedies(refused) == {"relax --cuda cu102": "torch 1.7.1 [cu110]"}


def test_a_variant_that_a_version_was_never_published_in(ask: Questions) -> None:
    plan = ask.plan("A100, driver 535.104.05, linux-x86_64, glibc 2.35", "torch==2.0.0+cu121")
    assert facts(plan) == [
        "torch==2.0.0+cu121 was requested",
        "torch 2.0.0 was published only as cpu, cu117, cu118; for cu121 versions 2.1.0 to 2.5.1 exist",
    ]
    ways = list(remedies(plan))
    assert ways[:2] == ["request torch==2.0.0+cu117", "request torch==2.1.0+cu121"]
    assert ways[2].startswith("relax")


def test_the_same_by_two_options(ask: Questions) -> None:
    plan = ask.plan(f"A100, driver 535.104.05, {HERE}", "torch==2.12.0", cuda="cu128")
    assert "torch 2.12.0 was published only as cpu, cu126, cu130, cu132" in facts(plan)
    assert list(remedies(plan)) == ["relax --cuda cu128", "relax torch==2.12.0"]


def test_a_version_that_never_was(ask: Questions) -> None:
    plan = ask.plan(f"V100, driver 580.95.05, {HERE}", "torch==2.9.2")
    assert facts(plan)[1].endswith("none of these versions satisfies ==2.9.2; the nearest versions: 2.9.1, 2.10.0")
    assert list(remedies(plan))[:2] == ["request torch==2.10.0+cu128", "request torch==2.9.1+cu128"]


def test_a_version_without_cuda_for_the_system(ask: Questions) -> None:
    plan = ask.plan("GB10, driver 580.95.05, python 3.12, linux-aarch64, glibc 2.39", "torch==2.3.0")
    assert facts(plan) == [
        "torch==2.3.0 was requested",
        "torch 2.3.0 [cu121]: the wheel is for linux_x86_64, the machine is linux aarch64",
        "torch 2.3.0 [cpu]: a CPU build: it does not use NVIDIA GB10 (cc 12.1)",
    ]
    ((way, unlocked),) = remedies(plan).items()
    assert way == "relax torch==2.3.0" and unlocked.startswith("torch 2.")


def test_v100_keeps_cu126_and_ends_with_it(ask: Questions) -> None:
    target = f"V100, driver 535.104.05, {HERE}"
    assert torch(ask.plan(target, "torch>=2.11")).endswith("cu126"), "not on the default index, but published"
    plan = ask.plan(target, "torch>=2.15")
    assert facts(plan)[:2] == [
        "the machine has Tesla V100 (cc 7.0), which requires code for sm_70",
        "torch>=2.15 was requested",
    ]
    assert all("no code for cc 7.0" in fact for fact in facts(plan)[2:]), "the driver is another matter"
    ((way, unlocked),) = remedies(plan).items()
    assert way == "relax torch>=2.15" and unlocked.startswith("torch 2.14.")


def test_a_card_that_came_after_the_release(ask: Questions) -> None:
    plan = ask.plan("RTX 5090, driver 580.95.05, linux-x86_64, glibc 2.35", "torch==2.0.0")
    assert plan.python == "3.11", "one that torch 2.0.0 is for: the refusal is not about a Python that nobody named"
    assert not any("Python" in fact for fact in facts(plan))


def test_a_driver_too_old_in_a_data_centre(ask: Questions) -> None:
    plan = ask.plan(f"A100, driver 470.256.02, {HERE}", "torch>=2.8")
    ways = list(remedies(plan))
    assert ways[0] == "relax torch>=2.8"
    assert ways[1].startswith("keep the driver, install cuda-compat-12-")
    assert ways[2] == "install driver 525.60.13 or newer (branch R525)"
    desktop = ask.plan(f"RTX 3090, driver 470.256.02, {HERE}", "torch>=2.8")
    assert not any("cuda-compat" in way for way in remedies(desktop))


def test_a_variant_that_torch_was_never_published_for(ask: Questions) -> None:
    plan = ask.plan(f"H100, driver 580.95.05, {HERE}", "torch", cuda="cu131")
    assert facts(plan) == [
        "the CUDA variant cu131 was requested",
        "torch was never published for cu131; the nearest variants are cu130 and cu132",
    ]
    assert list(remedies(plan)) == ["use --cuda cu132", "use --cuda cu130", "relax --cuda cu131"]


def test_a_variant_that_never_was_on_a_driver_for_neither_neighbour(ask: Questions) -> None:
    plan = ask.plan(f"H100, driver 535.104.05, {HERE}", "torch", cuda="cu131")
    (unlocked,) = remedies(plan).values()
    assert unlocked.endswith("[cu126]")
