"""What is said where there is no plan: the conflict, irreducible, and what would make it fit."""

from __future__ import annotations

from msgspec.structs import replace

from envsolve.machine.model import Platform
from envsolve.planning.plan import Plan
from tests.smallworld import OLD, World


def test_an_impossible_machine_is_refused_with_the_reason(torch_world: World) -> None:
    plan = torch_world.plan("torch", target="RTX 5090, driver 560.35.03")
    assert plan.status == "impossible"
    assert "570" in plan.conflict[0].fact
    assert torch_world.server.asked("/") == 0


def test_a_refusal_survives_json(torch_world: World) -> None:
    plan = torch_world.plan("torch", target="RTX 5090, driver 560.35.03")
    assert plan.remedies
    assert Plan.from_json(plan.to_json()) == plan


def test_a_pin_without_code_for_the_card_is_an_irreducible_conflict_with_remedies(torch_world: World) -> None:
    torch_world.build("torch", "2.1.2", "cu121", requires=["filelock"], code=OLD)
    plan = torch_world.plan("torch==2.1.2", target="RTX 5090, driver 580.95.05")
    facts = [fact.fact for fact in plan.conflict]
    assert plan.status == "impossible"
    assert any("torch==2.1.2" in fact for fact in facts)
    assert any("sm_120" in fact for fact in facts)
    assert not any("Python is" in fact or "glibc" in fact for fact in facts)
    assert plan.remedies[0].text == "relax torch==2.1.2"
    assert plan.remedies[0].unlocks == "torch 2.14.1 [cu130]"


def test_a_driver_that_is_too_old_for_the_pin_names_the_driver_to_install(torch_world: World) -> None:
    plan = torch_world.plan("torch==2.14.1", target="RTX 5090, driver 570.86.10")
    assert plan.status == "impossible"
    assert any("580.65.06" in remedy.text for remedy in plan.remedies)


def test_never_a_driver_that_drops_the_card(torch_world: World) -> None:
    plan = torch_world.plan("torch", cuda="cu130", target="V100, driver 570.86.10")
    assert plan.status == "impossible"
    assert not any("driver 59" in r.text or "driver 6" in r.text for r in plan.remedies)


def test_a_conflict_is_a_chain_of_because(world: World) -> None:
    world.default.wheel("a", "1.0", requires=["c>=2"])
    world.default.wheel("b", "1.0", requires=["c<2"])
    for version in ("1.0", "2.0"):
        world.default.wheel("c", version)
    plan = world.plan("a", "b")
    facts = [fact.fact for fact in plan.conflict]
    assert plan.status == "impossible"
    assert "a 1.0 requires c>=2" in facts
    assert "b 1.0 requires c<2" in facts


def test_an_unknown_project_is_named(world: World) -> None:
    plan = world.plan("no-such-project")
    assert plan.status == "impossible"
    assert any("no configured index has a project named no-such-project" in f.fact for f in plan.conflict)


def test_a_version_that_is_not_known_is_not_blamed_on_the_machine(torch_world: World) -> None:
    plan = torch_world.plan("torch==3.7")
    assert [fact.fact for fact in plan.conflict] == [
        "torch==3.7 was requested",
        "the catalogue has torch 2.9.1 to 2.14.1, and none of these versions satisfies ==3.7; the nearest versions: "
        "2.14.1",
    ]


def test_musl_is_named_as_the_reason(torch_world: World) -> None:
    plan = torch_world.plan("torch", target="H100, driver 580.95.05, musl 1.2")
    assert plan.status == "impossible"
    assert any("musl 1.2" in fact.fact for fact in plan.conflict)


def test_a_machine_of_another_system_is_refused_with_the_reason(torch_world: World) -> None:
    machine = replace(torch_world.machine("H100, driver 580.95.05"), platform=Platform("darwin", "arm64"))
    plan = torch_world.plan_for([machine], "torch")
    assert plan.status == "impossible"
    assert "darwin arm64" in plan.conflict[0].fact


def test_cards_that_no_build_serves_together_are_planned_apart(torch_world: World) -> None:
    plan = torch_world.plan("torch", target="RTX 5090 + GTX 1080 Ti, driver 580.95.05")
    assert plan.status == "impossible"
    assert [remedy.unlocks for remedy in plan.remedies if "only" in remedy.text] == [
        "torch 2.14.1 [cu130]",
        "torch 2.14.1 [cu126]",
    ]


def test_a_cpu_pin_on_a_gpu_machine_says_why_and_how(torch_world: World) -> None:
    plan = torch_world.plan("torch==2.11.0+cpu")
    assert any("a CPU build" in fact.fact for fact in plan.conflict)
    assert any("--cuda cpu" in remedy.text for remedy in plan.remedies)
