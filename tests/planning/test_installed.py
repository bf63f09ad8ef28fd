"""What ``diagnose`` condemns is never planned: a plan, installed into the model of an environment, has no diagnosis."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

import envsolve
from envsolve.facts.catalogue import Catalogue
from tests.installed import diagnosed
from tests.planning.questions import Questions

CATALOGUE = Catalogue()
TARGET = "RTX 4090, driver 580.95, linux-x86_64, glibc 2.35"
BENCH = sorted((Path(__file__).parents[2] / "bench" / "requirements").glob("*.txt"))
SETS = (
    "torch",
    "torch numpy",
    "torch==2.2.2 numpy",
    "torch nvidia-cudnn-cu12",
    "torch nvidia-cudnn-cu13",
    "torch==2.7.1 nvidia-cudnn-cu11",
    "torch==2.7.1 nvidia-nccl-cu12",
    "torch<2.4 nvidia-curand-cu11",
)

#: Sets of several frameworks, and the small inputs that once were planned and condemned, on the default index.
REAL = (
    "torch jax[cuda12]",
    "torch jax[cuda13]",
    "torch tensorflow[and-cuda]",
    "tensorflow jax[cuda12] torch",
    "torch==2.2.2 torchvision",
    "torch opencv-python==4.8.1.78",
    "pyarrow==13.0.0 h5py==3.10.0",
    "torch==2.7.1 nvidia-cudnn-cu12==9.5.1.17",
    "torch==2.7.1 nvidia-cudnn-cu11",
    "torch nvidia-cuda-runtime-cu11",
    "torch==2.15.0 torchaudio",
    "torch==2.9.1 torchao==0.9.0",
    "sglang==0.5.9",
    "torch transformer-engine[pytorch]",
    "jax[cuda12] transformer-engine[jax]",
    "torch cuequivariance-torch cuequivariance-ops-torch-cu12",
    "torch==2.5.1 vllm",
    "cudf-cu12 torch",
    "rembg onnxruntime-gpu",
    "fastapi gradio<6",
)
#: Packages that have the same files: no plan installs two of them.
TWINS = (
    "onnxruntime onnxruntime-gpu",
    "tensorflow tensorflow-cpu",
    "transformer-engine-cu12 transformer-engine-cu13",
    "cuequivariance-ops-torch-cu12 cuequivariance-ops-torch-cu13",
    "cupy-cuda11x cupy-cuda12x",
    "faiss-cpu faiss-gpu-cu12",
    "nvidia-cudnn-cu12 nvidia-cudnn-cu13",
)


@pytest.mark.parametrize("asked", SETS)
def test_a_plan_has_no_diagnosis_once_it_is_installed(ask: Questions, asked: str) -> None:
    plan = ask.plan(TARGET, *asked.split())
    assert plan.status == "ok", plan.conflict
    assert diagnosed(plan, ask.catalogue).diagnoses == ()


def test_the_model_of_an_environment_shows_a_clash(ask: Questions) -> None:
    plan, other = ask.plan(TARGET, "torch"), ask.plan(TARGET, "torch", "nvidia-cudnn-cu12")
    second = next(p for p in other.packages if p.name == "nvidia-cudnn-cu12")
    torch = next(p for p in plan.packages if p.name == "torch")
    assert f"nvidia-cudnn-cu{13 if torch.variant == 'cu132' else 12}" in torch.requires
    both = structs.replace(plan, packages=(second, *plan.packages, structs.replace(second, name="nvidia-cudnn-cu13")))
    assert [one.cause for one in diagnosed(both, ask.catalogue).diagnoses] == ["library-mismatch"]


@pytest.mark.network
@pytest.mark.parametrize("file", BENCH, ids=lambda path: path.stem)
def test_a_plan_of_the_benchmark_has_no_diagnosis_once_it_is_installed(file: Path) -> None:
    machine = envsolve.describe_target(f"{TARGET}, python 3.12")
    plan = envsolve.plan(envsolve.Request(files=[file]), [machine])
    assert plan.status in ("ok", "unknown")
    assert diagnosed(plan, CATALOGUE).diagnoses == ()


@pytest.mark.network
@pytest.mark.parametrize("asked", REAL)
def test_a_plan_of_several_frameworks_has_no_diagnosis_once_it_is_installed(asked: str) -> None:
    plan = envsolve.plan(envsolve.Request(asked.split()), [envsolve.describe_target(f"{TARGET}, python 3.12")])
    assert plan.status in ("ok", "unknown"), plan.conflict
    assert diagnosed(plan, CATALOGUE).diagnoses == ()


@pytest.mark.network
@pytest.mark.parametrize("asked", TWINS)
def test_packages_with_the_same_files_have_no_plan(asked: str) -> None:
    plan = envsolve.plan(envsolve.Request(asked.split()), [envsolve.describe_target(f"{TARGET}, python 3.12")])
    assert plan.status == "impossible"
    assert any("installs the files of" in fact.fact for fact in plan.conflict)
