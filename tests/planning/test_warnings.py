"""The warnings of a plan that works."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from envsolve.machine.model import Driver
from envsolve.planning.plan import Plan
from tests.smallworld import World


def said(plan: Plan, code: str) -> list[str]:
    return [f"{warning.message}; {warning.remedy}" for warning in plan.warnings if warning.code == code]


@pytest.fixture
def extras(world: World) -> World:
    world.default.wheel("requests", "2.34", extras=["socks"], requires=['pysocks; extra == "socks"'])
    world.default.wheel("pysocks", "1.0")
    world.default.wheel("tool", "1.0", requires=["requests[gone]"])
    return world


def test_an_extra_that_no_version_has_is_reported_with_those_there_are(extras: World) -> None:
    plan = extras.plan("requests[nosuchextra,Socks]")
    assert {package.name for package in plan.packages} == {"requests", "pysocks"}
    (warning,) = said(plan, "unknown-extra")
    assert "requests[nosuchextra] 2.34" not in warning
    assert "requests 2.34 has no extra nosuchextra" in warning
    assert "its extras: socks" in warning


def test_an_extra_that_only_a_dependency_asks_for_is_reported_too(extras: World) -> None:
    assert "has no extra gone" in said(extras.plan("tool"), "unknown-extra")[0]


def test_known_extras_say_nothing(extras: World) -> None:
    assert said(extras.plan("requests[socks]"), "unknown-extra") == []


def test_an_extra_of_a_build_is_reported(torch_world: World) -> None:
    plan = torch_world.plan("torch[cuda]")
    assert "torch 2.14.1 [cu130] has no extra cuda" in said(plan, "unknown-extra")[0]


@pytest.fixture
def frameworks(world: World) -> World:
    """Packages whose GPU code or libraries are other packages."""
    for name in ("jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cublas-cu12", "onnxruntime-gpu"):
        world.default.wheel(name, "12.9")
    world.default.wheel(
        "jax",
        "0.10.2",
        extras=["cuda12", "cuda13"],
        requires=['jax-cuda12-plugin; extra == "cuda12"', 'jax-cuda13-plugin; extra == "cuda13"'],
    )
    for name, version in (("flax", "1.0"), ("rembg", "2.0")):
        world.default.wheel(name, version, requires=["jax" if name == "flax" else "onnxruntime"])
    for name, version in (
        ("onnxruntime", "1.30"),
        ("tensorflow", "2.21"),
        ("tensorflow", "2.12.1"),
        ("ctranslate2", "4.8.5"),
        ("transformer-engine", "2.9.0"),
    ):
        world.default.wheel(name, version)
    return world


NEW_LINUX = "RTX 3060, driver 580.95, python 3.12, linux-x86_64"
OLD_LINUX = "GTX 1080 Ti, driver 535.54, python 3.12, linux-x86_64"
WINDOWS = "RTX 3060, driver 580.95, python 3.12, windows-x86_64"


@pytest.mark.parametrize(
    ("asked", "target", "advice"),
    [
        ("jax", NEW_LINUX, "request jax[cuda13]"),
        ("jax", OLD_LINUX, "request jax[cuda12]"),
        ("flax", NEW_LINUX, "request jax[cuda13]"),
        (
            "jax",
            "RTX 2080, driver 450.80, python 3.12, linux-x86_64",
            "no build with GPU support runs on these machines",
        ),
        ("jax", WINDOWS, "use WSL 2"),
        ("tensorflow", NEW_LINUX, "request tensorflow[and-cuda]"),
        (
            "tensorflow<2.14",
            NEW_LINUX,
            "request nvidia-cudnn-cu11==8.* nvidia-cublas-cu11 nvidia-cuda-runtime-cu11 nvidia-cufft-cu11 "
            "nvidia-curand-cu11 nvidia-cusolver-cu11 nvidia-cusparse-cu11; "
            "add their lib directories to LD_LIBRARY_PATH",
        ),
        ("tensorflow", WINDOWS, "use WSL 2, or a release before 2.11"),
        ("transformer-engine", NEW_LINUX, "request transformer-engine[pytorch] or transformer-engine[jax]"),
        ("ctranslate2", OLD_LINUX, "request nvidia-cublas-cu12; add its lib directory to LD_LIBRARY_PATH"),
        ("onnxruntime", NEW_LINUX, "request onnxruntime-gpu; remove onnxruntime, which installs the same files"),
        # Its wheels for this processor have no GPU code, so that no library helps.
        (
            "ctranslate2",
            "H100, driver 580.95, python 3.12, linux-aarch64",
            "compile CTranslate2 from source with -DWITH_CUDA=ON",
        ),
    ],
)
def test_a_package_that_runs_on_the_cpu_beside_a_gpu_is_reported(
    frameworks: World, asked: str, target: str, advice: str
) -> None:
    (warning,) = said(frameworks.plan(asked, target=target), "gpu-unused")
    assert warning.endswith(advice)


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        (("jax[cuda12]",), NEW_LINUX),
        (("jax", "jax-cuda13-plugin"), NEW_LINUX),
        (("ctranslate2", "nvidia-cublas-cu12"), NEW_LINUX),
        # A package that uses it on the CPU on purpose.
        (("rembg",), NEW_LINUX),
        (("jax",), "no GPU, python 3.12, linux-x86_64"),
    ],
)
def test_nothing_is_reported_if_the_gpu_is_used_or_there_is_none(
    frameworks: World, asked: tuple[str, ...], target: str
) -> None:
    plan = frameworks.plan(*asked, target=target)
    assert plan.packages
    assert said(plan, "gpu-unused") == []


def test_what_a_newer_libcuda_of_cuda_compat_runs_is_recommended(frameworks: World) -> None:
    machine = frameworks.machine("A100, driver 535.183.01")
    newer = replace(machine, driver=replace(machine.driver or Driver(), compat_libcuda="13.0"))
    asked = [
        said(frameworks.plan_for([one], "jax"), "gpu-unused")[0].rpartition("request ")[2] for one in (machine, newer)
    ]
    assert asked == ["jax[cuda12]", "jax[cuda13]"]


def test_a_cpu_variant_that_was_asked_for_is_no_surprise(frameworks: World) -> None:
    assert said(frameworks.plan("jax", target=NEW_LINUX, cuda="cpu"), "gpu-unused") == []
