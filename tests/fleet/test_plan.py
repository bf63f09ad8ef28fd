"""The fewest plans of a fleet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envsolve.cli import main
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.fleet.constraints import htcondor, kubernetes, slurm
from envsolve.fleet.model import Inventory, Labels, NodeClass
from envsolve.fleet.plan import common_python, read_plan
from envsolve.machine.model import Interpreter, Machine
from envsolve.planning.lock import Assumptions
from tests.fleet.conftest import MakeFleet
from tests.smallworld import World

MIXED = (
    ("gpu01", "V100", "580.95.05"),
    ("gpu02", "V100", "580.95.05"),
    ("gpu03", "5090", "580.95.05"),
    ("gpu04", "H100", "535.104.05"),
)


def plan(fleet: Path, *words: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main.run(["fleet", "plan", *words, "--fleet", str(fleet)])
    assert ended.value.code == code


def test_each_class_is_in_one_plan_and_each_plan_has_a_lock(
    torches: World, make_fleet: MakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet(*MIXED, expected=("gpu05",))
    plan(fleet, "torch")
    text = capsys.readouterr().out
    made = read_plan(fleet)
    assert made.python == "3.12"
    served = {name: (group.assumes.cuda, group.nodes) for group in made.groups for name in group.classes}
    assert served == {
        "v100-580.95.05": ("cu126", ("gpu01", "gpu02", "gpu04")),
        "h100-535.104.05": ("cu126", ("gpu01", "gpu02", "gpu04")),
        "rtx5090-580.95.05": ("cu130", ("gpu03",)),
    }
    assert {group.lock(fleet).name for group in made.groups} == {path.name for path in (fleet / "locks").iterdir()}
    assert made.unreachable == {"gpu05": "there is no profile of this node"}
    assert text.startswith("2 plans for 4 of 5 nodes, Python 3.12\n")
    assert "gpu05: there is no profile of this node" in text
    assert "one plan for all nodes is not possible, because" in text


def test_what_a_driver_upgrade_saves_is_told(torches: World, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(("gpu01", "5090", "580.95.05"), ("gpu02", "H100", "535.104.05"), ("gpu03", "H100", "580.95.05"))
    plan(fleet, "torch")
    made = read_plan(fleet)
    assert len(made.groups) == 2
    (upgrade,) = made.upgrades
    assert (upgrade.before, upgrade.after, upgrade.nodes) == ("535.104.05", "580.95.05", ("gpu02",))
    assert (upgrade.plans, upgrade.unserved) == (1, 0)


def test_one_plan_needs_no_reason_and_no_upgrade(torches: World, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(("gpu01", "H100", "580.95.05"), ("gpu02", "L40S", "535.104.05"))
    plan(fleet, "torch")
    made = read_plan(fleet)
    assert (len(made.groups), made.fewer, made.upgrades) == (1, (), ())


def test_a_class_without_a_plan_is_told_with_exit_code_3(
    torches: World, make_fleet: MakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet(("gpu01", "5090", "560.35.03"), ("gpu02", "H100", "580.95.05"))
    plan(fleet, "torch", code=3)
    made = read_plan(fleet)
    assert made.unserved.keys() == {"rtx5090-560.35.03"}
    assert [group.nodes for group in made.groups] == [("gpu02",)]
    assert "no plan:\n  rtx5090-560.35.03 (1 node): " in capsys.readouterr().out
    assert [(up.before, up.unserved) for up in made.upgrades] == [("560.35.03", 0)]


def test_classes_can_be_left_out(torches: World, make_fleet: MakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = make_fleet(*MIXED)
    plan(fleet, "torch", "--without", "rtx5090-580.95.05")
    assert len(read_plan(fleet).groups) == 1
    assert "left out: rtx5090-580.95.05 (1 node: gpu03)" in capsys.readouterr().out
    plan(fleet, "torch", "--without", "nope", code=2)


def test_without_the_index_the_plan_is_shown_and_the_earlier_one_stays(
    torches: World, make_fleet: MakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet(("gpu01", "V100", "580.95.05"))
    (fleet / "plan.json").write_text("an earlier plan")
    before = {path.name for path in fleet.iterdir()}
    torches.server.fault("/whl/cu126/torch/", status=503)
    plan(fleet, "torch", code=5)
    told = capsys.readouterr()
    assert told.out.startswith("1 plan for 1 of 1 nodes")
    assert "torch 2.11.0+cu126" in told.out
    assert "the plan is shown but not saved: " in told.err and "has no sha256 of torch" in told.err
    assert (fleet / "plan.json").read_text() == "an earlier plan"
    assert {path.name for path in fleet.iterdir()} - before == {".lock"}


def test_no_plan_is_read_before_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"plan\.json"):
        read_plan(tmp_path)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(UsageError, match="not the plan"):
        read_plan(tmp_path)


def with_pythons(*versions: str) -> NodeClass:
    return NodeClass("x", ("x",), Machine(pythons=tuple(Interpreter(version, "/p") for version in versions)))


def test_the_python_is_one_that_all_nodes_have() -> None:
    catalogue = Catalogue()
    assert common_python([with_pythons("3.11.2", "3.12.1"), with_pythons("3.11.9", "3.9.1")], catalogue) == "3.11"
    assert common_python([with_pythons("3.11.2"), with_pythons("3.12.1")], catalogue) is None
    assert common_python([NodeClass("x", ("x",), Machine())], catalogue) is None


# What jobs must ask for.


ASSUMES = Assumptions(arch="x86_64", driver_required="525.60.13", gpus=("7.0", "9.0"))


def inventory(**features: str) -> Inventory:
    nodes = {name: Labels(tuple(text.split()), ("gpu:x:4",)) for name, text in features.items()}
    return Inventory(classes=(NodeClass("all", tuple(nodes), Machine()),), labels=nodes)


@pytest.mark.parametrize(
    ("nodes", "options"),
    [
        (["a", "b"], ('--constraint="v100"',)),
        (["a", "b", "c"], ('--constraint="h100|v100"',)),
        (["a"], ('--constraint="(fast&v100)"',)),
        (["d"], ("--exclude=a,b,c",)),
        (["a", "b", "c", "d"], ()),
    ],
)
def test_slurm_gets_features_that_only_nodes_of_the_plan_have(nodes: list[str], options: tuple[str, ...]) -> None:
    known = inventory(a="v100 fast ib", b="v100 ib", c="h100 fast ib", d="ib")
    assert slurm.requirements(ASSUMES, nodes, known, Catalogue()) == ("--gres=gpu:1", *options)


def test_without_labels_there_is_nothing_to_ask_slurm_for() -> None:
    assert slurm.requirements(ASSUMES, ["a"], Inventory(), Catalogue()) == ()


def test_kubernetes_gets_affinity_for_each_gpu_and_for_newer_and_equal_branches() -> None:
    spec = kubernetes.requirements(ASSUMES, ["a"], Inventory(), Catalogue())
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [
        {e["key"].split("/")[1]: (e["operator"], *e["values"]) for e in term["matchExpressions"]}
        for term in required["nodeSelectorTerms"]
    ]
    volta = {"arch": ("In", "amd64"), "gpu.compute.major": ("In", "7"), "gpu.compute.minor": ("In", "0")}
    assert terms[0] == {**volta, "cuda.driver-version.major": ("Gt", "525")}
    assert terms[1] == {**volta, "cuda.driver-version.major": ("In", "525"), "cuda.driver-version.minor": ("Gt", "59")}
    assert len(terms) == 4
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}


def test_kubernetes_pods_with_it_are_valid(tmp_path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    spec: dict[str, Any] = json.loads(json.dumps(kubernetes.requirements(ASSUMES, ["a"], Inventory(), Catalogue())))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    validate.validate(pod, "1.37", strict=True)
    with pytest.raises(validate.ValidationError):
        validate.validate({**pod, "spec": {**spec, "affinities": {}}}, "1.37", strict=True)


def test_htcondor_gets_the_gpus_and_the_cuda_version_of_the_driver() -> None:
    assert htcondor.requirements(ASSUMES, ["a"], Inventory(), Catalogue()) == (
        "request_gpus = 1",
        "require_gpus = Capability == 7.0 || Capability == 9.0",
        "gpus_minimum_runtime = 12.0",
    )
    assert htcondor.requirements(Assumptions(), ["a"], Inventory(), Catalogue()) == ()
