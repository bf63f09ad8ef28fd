"""What a plan says about the GPU code in its wheels."""

from __future__ import annotations

import pytest

from envsolve.planning.plan import Plan
from tests.planning.worlds import codes
from tests.smallworld import World


def test_the_fast_paths_of_a_measured_wheel(torch_world: World) -> None:
    plan = torch_world.plan("torch==2.11.0", target="H100 + RTX 5090, driver 580.95.05")
    codes = {(one.gpu.partition(" (")[0], one.path): one.code for one in plan.fast_paths if one.package == "torch"}
    assert codes["NVIDIA H100", "grouped bf16"] == "sm_90a"
    assert codes["NVIDIA GeForce RTX 5090", "grouped bf16"] is None
    assert Plan.from_json(plan.to_json()).fast_paths == plan.fast_paths


@pytest.mark.parametrize(
    ("asked", "target", "status"),
    [
        (("mxnet-cu112",), "RTX 5090, driver 580.95", "unknown"),
        (("mxnet-cu112",), "no GPU", "ok"),
        # Who asks for something else is told; what it needs may be optional there.
        (("tool",), "RTX 5090, driver 580.95", "ok"),
        (("engine",), "RTX 5090, driver 580.95", "ok"),
        (("kernels-gpu",), "RTX 5090, driver 580.95", "ok"),
        (("nvidia-cublas-cu12",), "RTX 5090, driver 580.95", "ok"),
    ],
)
def test_gpu_code_that_nobody_has_looked_at_makes_the_plan_unknown(
    world: World, asked: tuple[str, ...], target: str, status: str
) -> None:
    for name in ("mxnet-cu112", "nvidia-cublas-cu12"):
        world.default.wheel(name, "1.9", tags="py3-none-manylinux2014_x86_64")
    world.default.wheel("tool", "1.0", requires=["mxnet-cu112"])
    world.default.wheel("engine", "1.0", tags="cp312-cp312-manylinux2014_x86_64", requires=["nvidia-cublas-cu12"])
    world.default.wheel("kernels-gpu", "1.0")  # Python alone: there is no machine code in it
    plan = world.plan(*asked, target=target)
    assert plan.status == status
    assert ("not-judged" in codes(plan)) == (asked[0] not in ("nvidia-cublas-cu12",))
