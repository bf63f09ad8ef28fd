"""Several plans written down."""

from __future__ import annotations

import json

from msgspec.structs import replace

from envsolve.formats import files, group_names, render_plans
from envsolve.machine.model import Gpu, Machine, Platform
from envsolve.planning.groups import Plans
from tests.formats.plans import GOOD, IMPOSSIBLE


def on(*cards: str, arch: str = "x86_64") -> tuple[Machine, ...]:
    return tuple(Machine(platform=Platform("linux", arch), gpus=(Gpu("a card", cc),)) for cc in cards)


PLANS = Plans(
    plans=(replace(GOOD, machines=on("9.0", "7.0")), replace(GOOD, machines=on("12.1", arch="aarch64"))),
    unserved=(IMPOSSIBLE,),
)


def test_plans_are_named_by_what_they_are_for() -> None:
    assert group_names(PLANS) == ("cu126-sm70-sm90", "cu126-sm121-aarch64")
    cpu = replace(GOOD, cuda="cpu", machines=(Machine(gpus=()),))
    assert group_names(Plans(plans=(cpu, cpu, replace(cpu, cuda=None)))) == ("cpu", "cpu-2", "any")


def test_a_file_for_each_plan_with_a_name_that_installers_take() -> None:
    assert [*files(PLANS, "pylock")] == ["pylock.cu126-sm70-sm90.toml", "pylock.cu126-sm121-aarch64.toml"]
    assert [*files(PLANS, "pip")] == ["pip.cu126-sm70-sm90.txt", "pip.cu126-sm121-aarch64.txt"]


def test_json_holds_each_plan_whole() -> None:
    told = json.loads(render_plans(PLANS, "json"))
    assert told["schema"] == "envsolve.plans/1"
    assert [plan["schema"] for plan in (*told["plans"], *told["unserved"])] == ["envsolve.plan/1"] * 3
    assert told["unserved"][0]["status"] == "impossible"
    assert told["plans"][0]["commands"]["pip"]


def test_the_summary_counts_and_says_what_to_do_with_it() -> None:
    text = render_plans(PLANS, "summary")
    assert "Plan      cu126-sm70-sm90\n" in text
    assert "No plan   no published build runs on this machine\n" in text
    assert "Total     2 plans for 3 machines; no plan for 1 machine\n" in text
    assert "save these plans with -o pylock.toml, then on each machine:" in text
    assert "Next" not in render_plans(Plans(unserved=(IMPOSSIBLE,)), "summary")
