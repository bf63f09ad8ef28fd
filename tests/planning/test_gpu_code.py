"""What a plan says about the GPU code in its wheels."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from envsolve.facts.catalogue import Catalogue
from envsolve.packages.requirement_files import read_requirements
from envsolve.planning.plan import Plan
from envsolve.planning.request import check_names
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
        # It has machine code, and requires libraries that only code for the GPU uses.
        (("engine",), "RTX 5090, driver 580.95", "unknown"),
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


OLD, NEW = ("sm_60", "sm_70"), ("sm_75", "sm_80")


def test_a_package_that_also_works_on_the_cpu_must_have_code_for_the_gpu_if_it_decides(torch_world: World) -> None:
    torch_world.build("xgboost", "3.4.1", "cu126", code=NEW)
    torch_world.build("xgboost", "3.2.0", "cu126", code=OLD)
    v100 = "V100, driver 535"
    (chosen,) = (p for p in torch_world.plan("xgboost", target=v100).packages if p.name == "xgboost")
    assert chosen.version == "3.2.0"
    assert torch_world.plan("xgboost==3.4.1", target=v100).status == "impossible"
    assert torch_world.plan("xgboost==3.4.1", target="no GPU").status == "ok"


def test_beside_torch_it_is_taken_for_the_cpu_with_a_warning(torch_world: World) -> None:
    torch_world.build("xgboost", "3.4.1", "cu126", code=NEW)
    plan = torch_world.plan("torch", "xgboost==3.4.1", target="V100, driver 535")
    assert plan.status == "ok"
    (warning,) = (w for w in plan.warnings if w.code == "gpu-unused")
    assert warning.message.startswith("xgboost 3.4.1 does not use the GPU: no code for cc 7.0")
    assert "xgboost" not in {line.package for line in plan.support}
    assert plan.driver is not None and plan.driver.required == "525.60.13"


def test_packages_whose_code_is_in_another_one_are_judged_with_it(world: World) -> None:
    world.build("libcudf-cu12", "26.10", "cu129", code=NEW)
    world.default.wheel("cudf-cu12", "26.10", tags="cp312-cp312-manylinux2014_x86_64", requires=["libcudf-cu12"])
    assert world.plan("cudf-cu12", target="A100, driver 550").status == "ok"
    refused = world.plan("cudf-cu12", target="V100, driver 550")
    assert refused.status == "impossible"
    assert any("no code for cc 7.0" in fact.fact for fact in refused.conflict)


@pytest.mark.parametrize(
    ("target", "version"),
    [("RTX 5090, driver 580", "10.9"), ("V100, driver 535", "10.4"), ("P100, driver 535", "8.6.1")],
)
def test_a_release_is_taken_for_the_gpus_that_its_documentation_names(world: World, target: str, version: str) -> None:
    for one in ("8.6.1", "10.4", "10.7", "10.9"):
        world.default.wheel("tensorrt", one)
    (chosen,) = world.plan("tensorrt", target=target).packages
    assert chosen.version == version
    refused = world.plan("tensorrt==10.7", target=target)
    assert refused.status == "impossible"
    assert any("does not support GPUs" in fact.fact for fact in refused.conflict)
    assert any(f"tensorrt {version}" in fix.unlocks for fix in refused.remedies)


def test_a_package_for_an_older_torchvision_leads_to_a_python_that_has_it(torch_world: World) -> None:
    old, pin = ("cp311",), "==2.1.2"
    torch_world.build("torch", "2.1.2", "cu126", code=("sm_80",), pythons=old, requires=["filelock"])
    torch_world.build("torchvision", "0.16.2", "cu126", pythons=old, torch=pin, code=("sm_80",))
    torch_world.default.wheel("basicsr", "1.4.2", requires=["torchvision"])
    refused = torch_world.plan("basicsr", target="A100, driver 550")
    assert [fix.pythons for fix in refused.remedies] == [("3.11",)]
    plan = torch_world.plan("basicsr", target="A100, driver 550, python 3.11")
    assert {"torchvision": "0.16.2", "basicsr": "1.4.2"}.items() <= {p.name: p.version for p in plan.packages}.items()
    # If any Python will do, the plan is for that one.
    machine = replace(torch_world.machine("A100, driver 550"), python=None)
    free = torch_world.plan_for([machine], "basicsr")
    (warning,) = [one for one in free.warnings if one.code == "python-chosen"]
    assert (free.python, "no torchvision<0.17" in warning.message) == ("3.11", True)
    # No torchvision before 0.17 has code for it, whatever the Python.
    refused = torch_world.plan("basicsr", target="RTX 5090, driver 580.95")
    assert not any(fix.pythons for fix in refused.remedies)
    assert any("torchvision 0.16.2" in fact.fact and "12.0" in fact.fact for fact in refused.conflict)


def test_a_sibling_without_a_cuda_in_its_name_is_proposed(world: World) -> None:
    world.build("faiss-gpu-cu12", "1.14.1", "cu120", code=("sm_70", "sm_80"))
    world.build("faiss-gpu", "1.15.1", "cu125", code=("sm_80", "compute_90"))
    refused = world.plan("faiss-gpu-cu12", target="RTX 5090, driver 580.95")
    assert [fix.text for fix in refused.remedies] == ["request faiss-gpu instead of faiss-gpu-cu12"]


def test_a_gpu_before_the_machines_own_is_proposed_if_no_later_one_runs(world: World) -> None:
    world.build("faiss-gpu-cu12", "1.14.1", "cu120", code=("sm_70", "sm_80"))
    (fix,) = world.plan("faiss-gpu-cu12", target="RTX 5090, driver 580.95").remedies
    assert fix.text.startswith("use another GPU, such as") and "unknown" not in fix.unlocks


def test_a_library_with_all_its_cuda_code_runs_by_ptx_on_gpus_that_its_toolkit_did_not_know(world: World) -> None:
    """CuPy loads cuBLAS of its CUDA, and that of CUDA 11 has no code for an RTX 5090."""
    for name in ("catboost", "cupy-cuda11x"):
        world.build(name, "1.2", "cu118", code=("sm_80", "compute_90"))
    assert world.plan("catboost", target="RTX 5090, driver 580.95").status == "ok"
    assert world.plan("cupy-cuda11x", target="RTX 5090, driver 580.95").status == "impossible"


def test_a_package_whose_code_is_in_another_is_no_mistake_for_it() -> None:
    check_names(read_requirements(["cugraph-cu12", "cudf-cu13"]).needs, Catalogue())


def test_a_triton_that_was_asked_for_and_runs_nothing_makes_the_plan_unknown(world: World) -> None:
    """mamba-ssm requires triton>=3.5; torch 2.3 for CUDA 11 pins none on Python 3.12."""
    world.default.wheel("filelock", "1.0")
    world.build("torch", "2.3.1", "cu118", requires=["filelock"], code=("sm_70",))
    world.build("triton", "3.8.0", "any")
    old = "V100, driver 470.82"
    assert world.plan("torch", target=old).status == "ok"
    plan = world.plan("torch", "triton>=3.5", target=old)
    assert plan.status == "unknown"
    assert any(w.code == "triton-limited" and "Triton 3.8.0" in w.message for w in plan.warnings)
    assert world.plan("torch", "triton>=3.5", target="V100, driver 535.54").status == "ok"
