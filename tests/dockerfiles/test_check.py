"""What is found in Dockerfiles, for machines: each check on a file that has the fault and on one that has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.api import check_dockerfile, describe_target
from envsolve.catalogue.load import Catalogue
from envsolve.cli.main import run
from envsolve.dockerfiles import check
from envsolve.dockerfiles.describe import describe
from envsolve.dockerfiles.model import Finding
from envsolve.plan import Plan
from envsolve.render import render
from tests.render.plans import GOOD
from tests.render.test_containers import compiled

ADA = "RTX 4090, driver 535.104.05, linux-x86_64"
NEWER = "RTX 4090, driver 560.35.03, linux-x86_64"
CUDA = "FROM nvidia/cuda:12.6.3-devel-ubuntu24.04\n"
PYTHON = "FROM python:3.12-slim-bookworm\n"
CU126 = "--index-url https://download.pytorch.org/whl/cu126"
TORCH = f"RUN pip install torch==2.9.0 {CU126}\n"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def found(text: str, target: str, catalogue: Catalogue) -> tuple[Finding, ...]:
    return check.check_dockerfile(text, (describe_target(target, catalogue),), catalogue).findings


WIDELY_COPIED = """\
FROM nvidia/cuda:12.1.1-devel-ubuntu20.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip install torch==2.0.0+cu121
COPY kernel.cu .
RUN nvcc -arch=sm_75 -o kernel kernel.cu
"""


def test_a_widely_copied_file(catalogue: Catalogue) -> None:
    python, build, arch = found(WIDELY_COPIED, ADA, catalogue)
    assert (python.line, python.code) == (1, "base-python")
    assert "Python 3.8" in python.text and python.remedies[0].startswith("FROM python:3.")
    assert (build.line, build.code, build.level) == (3, "unpublished-build", "error")
    assert "cpu, cu117, cu118 alone" in build.text
    assert build.remedies[0] == "pip install torch==2.0.0+cu118 --index-url https://download.pytorch.org/whl/cu118"
    assert (arch.line, arch.code) == (5, "nvcc-arch")
    assert "sm_75" in arch.text and "8.9" in arch.text
    assert arch.remedies == ("-gencode arch=compute_89,code=sm_89",)


@pytest.mark.parametrize(
    ("text", "target", "codes"),
    [
        (PYTHON + TORCH, ADA, []),
        # The image: its tag, what it asks of the driver, its compat libcuda.
        ("FROM nvidia/cuda:12.7.0-base-ubuntu22.04\n", ADA, ["image-unknown"]),
        ("FROM nvidia/cuda:12.6.0-base-ubuntu22.04\n", NEWER, ["image-retired"]),
        ("FROM nvidia/cuda:13.0.2-base-ubuntu24.04\n", ADA, ["image-driver"]),
        ("FROM nvidia/cuda:13.0.2-base-ubuntu24.04\n", "H100, driver 535.104.05", []),
        ("FROM nvidia/cuda:13.0.2-base-ubuntu24.04 AS tools\nFROM debian:12\n", ADA, []),  # runs as it builds alone
        ("FROM example.org/own:1\n", ADA, []),
        (CUDA + "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat\n", NEWER, ["compat-libcuda"]),
        (CUDA + "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64\n", NEWER, []),
        # The builds that pip takes.
        (PYTHON + "RUN pip install torch==2.11.0\n", "V100, driver 580.65.06, linux-x86_64", ["build-does-not-run"]),
        (PYTHON + TORCH, "V100, driver 535.104.05, linux-x86_64", []),
        (PYTHON + "RUN pip install torch==1.7.1\n", ADA, ["unpublished-build"]),  # not for Python 3.12
        (PYTHON + f"RUN pip install torch==2.14.1 torchvision {CU126}\n", ADA, []),
        # What is compiled, and for what.
        (CUDA + TORCH + "RUN pip install --no-build-isolation ./ext\n", NEWER, ["arch-list-unset"]),
        (CUDA + TORCH + "RUN TORCH_CUDA_ARCH_LIST=8.9 pip install --no-build-isolation ./ext\n", NEWER, []),
        (CUDA + TORCH + "ENV TORCH_CUDA_ARCH_LIST=9.0\nRUN pip install --no-build-isolation .\n", NEWER, ["arch-list"]),
        (CUDA + "RUN nvcc -gencode arch=compute_89,code=sm_89 a.cu\n", NEWER, []),
        (CUDA + "RUN nvcc -arch=sm_90 a.cu\n", NEWER, ["nvcc-arch"]),
        (CUDA + "RUN nvcc -arch=sm_100 a.cu\n", "B200, driver 570.86, linux-x86_64", ["nvcc-arch"]),  # 12.6 knows none
        # A later layer that replaces torch.
        (PYTHON + TORCH + "RUN pip install -r requirements.txt\n", ADA, ["torch-unheld"]),
        (PYTHON + TORCH + "RUN pip install -r requirements.txt -c held.txt\n", ADA, []),
        (PYTHON + TORCH + "RUN pip install --no-deps -r requirements.txt\n", ADA, []),
        (PYTHON + TORCH + "RUN pip install torchvision==0.20.0\n", ADA, ["torch-replaced"]),
    ],
)
def test_each_fault_is_found_and_nothing_else(catalogue: Catalogue, text: str, target: str, codes: list[str]) -> None:
    findings = found(text, target, catalogue)
    assert [finding.code for finding in findings] == codes, findings
    assert all(finding.remedies for finding in findings)


def test_an_extension_needs_the_toolkit_of_its_torch(catalogue: Catalogue) -> None:
    text = (
        "FROM nvidia/cuda:13.0.2-devel-ubuntu24.04\n" + TORCH + "ENV TORCH_CUDA_ARCH_LIST=9.0\n"
        "RUN pip install --no-build-isolation ./ext\n"
    )
    [finding] = found(text, "H100, driver 580.65.06, linux-x86_64", catalogue)
    assert (finding.code, finding.line) == ("toolkit-mismatch", 4)
    assert "12.6" in finding.text and "13.0" in finding.text


def test_a_stage_that_is_built_on_another_is_not_told_twice(catalogue: Catalogue) -> None:
    text = WIDELY_COPIED.replace("ubuntu20.04\n", "ubuntu20.04 AS one\n", 1) + "FROM one\nRUN pip install -r more.txt\n"
    assert [f.line for f in found(text, ADA, catalogue)] == [1, 3, 5, 7]


@pytest.mark.parametrize("plan", [GOOD, compiled()])
def test_what_a_plan_is_written_as_has_no_fault(catalogue: Catalogue, plan: Plan) -> None:
    assert check.check_dockerfile(render(plan, "dockerfile"), plan.machines, catalogue).findings == ()


def test_in_words(catalogue: Catalogue) -> None:
    report = check.check_dockerfile(WIDELY_COPIED, (describe_target(ADA, catalogue),), catalogue)
    text = describe(report, "Dockerfile")
    assert "Dockerfile:3: error: " in text and "    -> pip install torch==2.0.0+cu118" in text


def exit_code(*words: str) -> object:
    with pytest.raises(SystemExit) as left:
        run(["check-dockerfile", *words, "--target", ADA])
    return left.value.code


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(PYTHON + TORCH)
    assert not check_dockerfile(path, (describe_target(ADA),)).findings
    assert exit_code(str(path)) == 0
    assert "nothing found" in capsys.readouterr().out
    path.write_text(WIDELY_COPIED)
    assert exit_code(str(path), "--format", "json") == 4
    assert '"envsolve.dockerfile-check/1"' in capsys.readouterr().out
    assert exit_code(str(tmp_path / "none")) == 2
    assert "name a Dockerfile" in capsys.readouterr().err
