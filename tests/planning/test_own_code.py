"""Companions judged by their own GPU code, and packages that stand without torch."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from envsolve.facts.catalogue import Catalogue
from envsolve.machine.completed import machine_from_target
from envsolve.machine.target import parse_target
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import agrees
from envsolve.solve.family import Family, Option
from tests.planning.worlds import chosen, codes
from tests.smallworld import NEW, OLD, World

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)


def options(package: str, target: str) -> tuple[Option, ...]:
    text = f"{target}, python 3.12, linux-x86_64, glibc 2.35"
    machine = machine_from_target(parse_target(text), CATALOGUE)
    return Family(CATALOGUE, FACTS, (machine,), "3.12").options(package)


@pytest.mark.parametrize(
    ("package", "target", "newest"),
    [
        ("vllm", "V100, driver 580.95", "0.19.1"),
        ("xformers", "V100, driver 580.95", "0.0.30"),
        ("xformers", "RTX 4090, driver 580.95", "0.0.35"),
        ("cupy-cuda12x", "V100, driver 550.54", "14.2.0"),
    ],
)
def test_the_newest_version_with_code_for_the_card(package: str, target: str, newest: str) -> None:
    here = [o for o in options(package, target) if o.build.index == "default"]
    assert here[0].version.public == newest


def test_a_companion_without_code_for_the_card_is_no_option(torch_world: World) -> None:
    torch_world.build("vllm", "1.0", "cu126", code=OLD, torch="==2.14.*")
    torch_world.build("vllm", "2.0", "cu126", code=("sm_90",), torch="==2.14.*")
    assert chosen(torch_world.plan("vllm", target="H100, driver 580.95"))["vllm"] == "2.0 cu126"
    assert chosen(torch_world.plan("vllm", target="RTX 3090, driver 580.95"))["vllm"] == "1.0 cu126"


@pytest.mark.parametrize("code", [(), None])
def test_a_companion_without_code_of_its_own_goes_where_torch_goes(
    torch_world: World, code: tuple[str, ...] | None
) -> None:
    torch_world.build("torch-tensorrt", "1.0", "cu126", code=code, torch="==2.14.*")
    plan = torch_world.plan("torch-tensorrt", target="RTX 3090, driver 550.54")
    assert plan.status == ("unknown" if code is None else "ok")
    assert chosen(plan)["torch-tensorrt"] == "1.0 cu126"
    assert "torch-tensorrt" not in {line.package for line in plan.support}
    assert ("not-judged" in codes(plan)) is (code is None)


@pytest.mark.parametrize(
    ("driver", "found"), [("580.95", "2.0 cu130"), ("550.54", None)], ids=["driver for it", "driver too old"]
)
def test_a_package_without_torch_answers_to_the_driver_itself(world: World, driver: str, found: str | None) -> None:
    world.build("cupy-cuda13x", "2.0", "cu130", code=NEW)
    plan = world.plan("cupy-cuda13x", target=f"RTX 4090, driver {driver}")
    assert chosen(plan).get("cupy-cuda13x") == found
    facts = [fact.fact for fact in plan.conflict]
    assert (plan.status == "ok") is (found is not None)
    assert found or any("cupy-cuda13x 2.0 [cu130]: CUDA 13.0 needs driver 580.65.06" in fact for fact in facts)


def test_a_dependency_that_runs_nowhere_is_not_escaped_by_an_extra_of_an_older_version(world: World) -> None:
    world.build("jax-cuda13-plugin", "2.0", "cu130", code=NEW)
    world.default.wheel("jax", "2.0", requires=["jax-cuda13-plugin; extra == 'cuda13'"], extras=["cuda13"])
    world.default.wheel("jax", "1.0")
    assert chosen(world.plan("jax[cuda13]", target="H100, driver 580.95"))["jax"] == "2.0"
    plan = world.plan("jax[cuda13]", target="H100, driver 550.54")
    assert plan.status == "impossible"
    assert any("needs driver 580.65.06" in fact.fact for fact in plan.conflict)


def test_an_extra_that_no_longer_exists_is_not_looked_for_in_older_versions(world: World) -> None:
    world.default.wheel("lib", "2.0")
    world.default.wheel("lib", "1.0", extras=["gone"])
    assert chosen(world.plan("lib[gone]")) == {"lib": "2.0"}


@pytest.mark.parametrize(("cuda", "told"), [("13.0", True), ("12.6", False), (None, False)])
def test_optional_kernels_that_do_not_load_are_told_of(torch_world: World, cuda: str | None, told: bool) -> None:
    torch_world.build("torchao", "1.0", "any")
    torch_world.builds[-1] = replace(torch_world.builds[-1], cuda=cuda, code=("sm_90a",) if cuda else None)
    plan = torch_world.plan("torch", "torchao", target="RTX 3090, driver 550.54")
    assert plan.status == "ok"
    assert plan.driver and plan.driver.required == "525.60.13", "what is optional asks for no driver"
    assert ("kernels-not-loaded" in codes(plan)) is told


@pytest.mark.parametrize(
    ("torch", "library"),
    [("cu118", "cu118"), ("cu126", "cu126"), ("cu129", "cu128"), ("cu130", "cu130"), ("cu132", "cu132")],
)
def test_bitsandbytes_is_judged_by_the_library_that_it_loads(torch: str, library: str) -> None:
    beside = next(b for b in CATALOGUE.builds("torch") if b.variant == torch)
    builds = [b for b in CATALOGUE.builds("bitsandbytes") if (b.version, b.platform[-6:]) == ("0.50.2", "x86_64")]
    assert [b.variant for b in builds if agrees(b, replace(beside, version="2.11.0"), "major").ok] == [library]


@pytest.mark.parametrize(
    ("version", "torch", "works"),
    [("0.49.2", "cu129", True), ("0.48.2", "cu130", True), ("0.47.0", "cu130", False), ("0.45.0", "cu128", False)],
)
def test_an_older_bitsandbytes_wants_the_very_cuda(version: str, torch: str, works: bool) -> None:
    beside = next(b for b in CATALOGUE.builds("torch") if b.variant == torch)
    builds = [b for b in CATALOGUE.builds("bitsandbytes") if b.version == version and b.platform.endswith("x86_64")]
    assert any(agrees(b, beside, "major").ok for b in builds) is works


@pytest.mark.parametrize(
    ("torch", "torchao"), [("2.8.0", "0.14.0"), ("2.9.0", "0.14.1"), ("2.9.1", "0.15.0"), ("2.10.0", "0.16.0")]
)
def test_torchao_is_the_newest_whose_kernels_load(torch: str, torchao: str) -> None:
    beside = next(b for b in CATALOGUE.builds("torch") if b.version == torch and b.variant == "cu126")
    fitting = [o for o in options("torchao", "H100, driver 580.95") if agrees(o.build, beside, "nothing").ok]
    assert fitting[0].version.public == torchao
    assert fitting[0].build.platform.startswith("manylinux"), "the wheel with kernels goes before the one without"
    assert fitting[0].verdict.level.usable


def test_the_torch_of_the_best_pair_is_not_given_up_for_a_newer_companion(torch_world: World) -> None:
    """Triton 3.3 does not serve a V100: torch 2.6 goes before 2.7, and the companion follows."""
    torch_world.default.wheel("setuptools", "80.0")  # what Triton 3.2 imports undeclared
    for torch, triton, companion in (("2.6.0", "3.2.0", "1.0"), ("2.7.0", "3.3.0", "2.0")):
        torch_world.build("torch", torch, "cu126", requires=[f"triton=={triton}"], code=OLD)
        torch_world.build("triton", triton, "any")
        torch_world.build("vllm", companion, "cu126", code=OLD, torch=f"=={torch}")
    found = chosen(torch_world.plan("torch", "vllm", target="V100, driver 535.104.05"))
    assert (found["torch"], found["vllm"]) == ("2.6.0 cu126", "1.0 cu126")
