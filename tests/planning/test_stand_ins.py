"""triton-windows, which has Triton's modules under Triton's versions, and torch's metadata does not know it."""

from __future__ import annotations

import pytest

from tests.planning.worlds import chosen
from tests.smallworld import NEW, OLD, World

WINDOWS = "RTX 3060, driver 580.95, python 3.12, windows-x86_64"


@pytest.fixture
def windows(world: World) -> World:
    for version, triton in (("2.10.0", "3.6.0"), ("2.14.1", "3.8.0")):
        world.build("torch", version, "cu126", platform="win_amd64", code=(*NEW, *OLD))
        world.build("triton", triton, "any")
        world.default.wheel("triton-windows", f"{triton}.post26", tags="cp312-cp312-win_amd64")
    return world


@pytest.mark.parametrize(
    ("asked", "torch", "triton"),
    [
        (("torch", "triton-windows"), "2.14.1", "3.8.0.post26"),
        (("torch==2.10.0", "triton-windows"), "2.10.0", "3.6.0.post26"),
        (("torch", "triton-windows<3.7"), "2.10.0", "3.6.0.post26"),
    ],
)
def test_it_goes_with_the_torch_that_pins_its_triton(
    windows: World, asked: tuple[str, ...], torch: str, triton: str
) -> None:
    found = chosen(windows.plan(*asked, target=WINDOWS))
    assert (found["torch"].partition(" ")[0].partition("+")[0], found["triton-windows"]) == (torch, triton)


def test_another_pair_is_refused_and_the_fewest_requirements_are_relaxed_first(windows: World) -> None:
    """No torch 2.9 is published, so that to relax torch takes the other pin along."""
    windows.default.wheel("triton-windows", "3.5.0.post1", tags="cp312-cp312-win_amd64")
    plan = windows.plan("torch==2.10.0", "triton-windows==3.5.0.post1", target=WINDOWS)
    assert "triton-windows 3.5.0.post1 is built for torch>=2.9,<2.10" in [fact.fact for fact in plan.conflict]
    assert [fix.text for fix in plan.remedies] == [
        "relax triton-windows==3.5.0.post1",
        "relax torch==2.10.0 and triton-windows==3.5.0.post1",
    ]


def test_it_is_proposed_in_place_of_triton(windows: World) -> None:
    plan = windows.plan("torch", "triton", target=WINDOWS)
    assert plan.status == "impossible"
    first = plan.remedies[0]
    assert (first.text, first.unlocks) == ("request triton-windows instead of triton", "triton-windows 3.8.0.post26")


def test_it_is_not_proposed_where_triton_is_published(windows: World) -> None:
    plan = windows.plan("torch", "triton==9", target="RTX 3060, driver 580.95, python 3.12, linux-x86_64")
    assert not any("triton-windows" in fix.text for fix in plan.remedies)


def test_linux_on_windows_is_wsl_whose_libc_is_not_taken_for_the_oldest(world: World) -> None:
    for version, platform in (("0.11", "manylinux_2_28_x86_64"), ("0.19", "manylinux_2_31_x86_64")):
        world.build("triton", version, "any", platform=platform)
    (fix,) = world.plan("triton", target=WINDOWS).remedies
    assert (fix.text, fix.unlocks) == (
        "use Linux: WSL 2 on this machine can also use the GPU",
        "triton 0.19 [any] (unknown)",
    )


@pytest.mark.parametrize(("gpu", "limited"), [("GTX 1080", True), ("RTX 3060", False)])
def test_a_gpu_that_is_too_old_for_it_is_reported(windows: World, gpu: str, limited: bool) -> None:
    plan = windows.plan("torch", "triton-windows", target=f"{gpu}, driver 580.95, python 3.12, windows-x86_64")
    texts = [warning.message for warning in plan.warnings if warning.code == "triton-limited"]
    assert bool(texts) == limited
    assert all("supports cc 7.0 and newer, not 6.1" in text for text in texts)
