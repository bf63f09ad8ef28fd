"""Another driver, GPU or Python, against the plan as it is."""

from __future__ import annotations

import json

import pytest

from envsolve.errors import UsageError
from envsolve.formats.json import render_what_if as as_json
from envsolve.formats.summary import render_what_if as as_text
from envsolve.packages.requirement_files import read_requirements
from envsolve.planning.groups import WhatIf, make_what_if
from envsolve.planning.request import Request
from tests.smallworld import World


def ask(world: World, change: str, *requirements: str, target: str, **choices: str) -> WhatIf:
    with world.client() as client:
        asked, fixed = read_requirements(requirements), Request(**choices)  # type: ignore[arg-type]
        return make_what_if(change, asked, [world.machine(target)], fixed, world.catalogue(), client)


def told(answer: WhatIf) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    return {(one.kind, one.name): (one.now, one.then) for one in answer.differences if one.kind != "warning"}


def test_a_newer_driver_gives_a_newer_torch(torch_world: World) -> None:
    answer = ask(torch_world, "driver 580.95", "torch", target="H100, driver 550.54.15")
    assert told(answer) == {
        ("flavour", "flavour"): ("cu126", "cu130"),
        ("driver", "driver"): ("minor-version", "full"),
        ("package", "torch"): ("2.14.1+cu126", "2.14.1"),
    }


def test_another_card_and_what_its_triton_takes(torch_world: World) -> None:
    torch_world.default.wheel("nvidia-cuda-nvcc-cu12", "12.9.86", tags="py3-none-manylinux_2_17_x86_64")
    # A GB10 implies aarch64, which this index has no wheels for.
    answer = ask(torch_world, "GB10, linux-x86_64", "torch==2.9.1", target="H100, driver 580.95.05")
    assert told(answer) == {
        ("support", "torch"): ("native sm_90 on NVIDIA H100", "family sm_120 on NVIDIA GB10"),
        ("support", "triton"): ("native sm_90 on NVIDIA H100", "native sm_121 on NVIDIA GB10"),
        ("package", "nvidia-cuda-nvcc-cu12"): (None, "12.9.86"),
        ("variable", "TRITON_PTXAS_PATH"): (None, "{site_packages}/nvidia/cuda_nvcc/bin/ptxas"),
    }
    assert [one.name for one in answer.differences if one.kind == "warning"] == ["triton-assembler"]


@pytest.mark.parametrize(
    ("change", "now", "then"),
    [("driver 525.60.13", "impossible", "ok"), ("RTX 5090, driver 560", "impossible", "impossible")],
)
def test_an_impossible_plan_is_asked_about_as_well(torch_world: World, change: str, now: str, then: str) -> None:
    answer = ask(torch_world, change, "torch", target="A100, driver 470.82")
    assert (answer.now.status, answer.then.status) == (now, then)


def test_a_plan_that_would_become_impossible_says_why(torch_world: World) -> None:
    answer = ask(torch_world, "driver 470.82", "torch", target="A100, driver 550.54")
    assert told(answer)["status", "status"] == ("ok", "impossible")
    assert "470.82" in (told(answer)["conflict", "conflict"][1] or "")
    text = as_text(answer)
    assert "What if   driver 470.82: nothing fits; because" in text
    assert "install driver 525.60.13 or newer" in text


def test_another_python_than_the_one_that_was_chosen(torch_world: World) -> None:
    answer = ask(torch_world, "python 3.9", "torch", target="A100, driver 550.54", python="3.12")
    assert (answer.now.python, answer.then.python) == ("3.12", "3.9")


def test_a_change_that_changes_nothing(torch_world: World) -> None:
    answer = ask(torch_world, "driver 550.90", "torch", target="A100, driver 550.54.15")
    assert answer.differences == ()
    assert "nothing would change" in as_text(answer)


def test_what_is_no_change_is_refused(torch_world: World) -> None:
    with pytest.raises(UsageError):
        ask(torch_world, "  ", "torch", target="A100, driver 550.54.15")


def test_the_text_and_the_json(torch_world: World) -> None:
    answer = ask(torch_world, "driver 580.95", "torch", target="H100, driver 550.54.15")
    lines = as_text(answer).split("\n\n")[-1].splitlines()
    assert lines == [
        "What if   driver 580.95: cu130, torch 2.14.1, 3 packages",
        "                       now            then",
        "          variant      cu126          cu130",
        "          driver mode  minor-version  full",
        "          torch        2.14.1+cu126   2.14.1",
    ]
    read = json.loads(as_json(answer))
    assert (read["schema"], read["change"]) == ("envsolve.whatif/1", "driver 580.95")
    assert read["then"]["schema"] == "envsolve.plan/1"
    assert read["then"]["commands"]["pip"]
    assert read["differences"][0] == {"kind": "flavour", "name": "flavour", "now": "cu126", "then": "cu130"}
