"""Where the CUDA rules do not ask otherwise, a plan holds what uv chooses for the same request, target and date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.network.tools import Tools, pins

#: Both tools look at the index of this day, so that no release after it changes an answer.
DAY = "2026-11-25"


@dataclass(frozen=True)
class Request:
    """What both tools are asked; the driver runs the default index's variant, so that no rule bars it."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    python: str = "3.12"
    arch: str = "x86_64"
    gpu: str = "H100"
    day: str = DAY


REQUESTS = {
    "torch with its companions": Request(("torch", "torchvision", "transformers")),
    "wheels for another architecture": Request(("torch", "torchvision", "accelerate"), arch="aarch64", gpu="GH200"),
    "an older set, by bounds and by date": Request(
        ("torch~=2.8.0", "torchaudio~=2.8.0", "torchvision~=0.23.0", "numpy<2.3", "scipy"), day="2025-12-31"
    ),
    "extras, markers and constraints": Request(
        (
            "transformers[torch]",
            "fastapi[standard]",
            "tomli; python_version < '3.11'",
            "pywin32; sys_platform == 'win32'",
        ),
        constraints=("numpy<2.2", "huggingface-hub<1.0", "sympy<1.14"),
        python="3.10",
    ),
    "projects that publish pre-releases alone": Request(("ray[default]",), python="3.11"),
    "a source distribution": Request(("hydra-core",)),
    "a deep graph": Request(("apache-airflow", "jupyterlab", "pandas"), python="3.13"),
}


pytestmark = pytest.mark.network


def both_choose(tools: Tools, request: Request) -> tuple[dict[str, Any], dict[str, str]]:
    """The plan, and uv's versions by name."""
    asked = tools.file("asked.txt", request.requirements)
    bounds = tools.file("bounds.txt", request.constraints)
    common = (asked, "-c", bounds, "--exclude-newer", request.day)
    target = f"{request.gpu}, driver 580.95.05, python {request.python}, linux-{request.arch}, glibc 2.35"
    platform = ("--python-version", request.python, "--python-platform", f"{request.arch}-manylinux_2_35")
    plan = tools.plan("-r", *common, "--target", target)
    chosen = tools.uv("compile", *common, *platform, "--no-header", "--no-annotate").stdout
    return plan, pins(chosen.splitlines())


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
def test_the_plan_holds_what_uv_chooses(tools: Tools, request_: Request) -> None:
    plan, chosen = both_choose(tools, request_)
    assert {package["name"]: package["version"] for package in plan["packages"]} == chosen


def test_a_companion_built_for_another_cuda_is_where_the_plan_leaves_uv(tools: Tools) -> None:
    """torchaudio 2.11.0 (CUDA 13.0) refuses at import a torch of another CUDA minor, which its metadata does not say.

    uv pairs it with the default index's torch 2.15.0 (CUDA 13.2) all the same; the plan finds one that it works with.
    """
    plan, chosen = both_choose(tools, Request(("torch", "torchaudio")))
    planned = {package["name"]: package for package in plan["packages"]}
    assert (chosen["torch"], chosen["torchaudio"]) == ("2.15.0", "2.11.0")
    assert planned["torchaudio"]["version"] == "2.11.0"
    assert planned["torch"]["variant"] == planned["torchaudio"]["variant"] == "cu130"
