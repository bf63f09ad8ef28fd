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
from envsolve.machine.model import Machine
from envsolve.plan import Plan
from envsolve.render import render
from tests.render.plans import GOOD
from tests.render.test_containers import compiled

ADA = "RTX 4090, driver 535.104.05, linux-x86_64"
NEWER = "RTX 4090, driver 560.35.03, linux-x86_64"
CUDA = "FROM nvidia/cuda:12.6.3-devel-ubuntu24.04\n"
PYTHON = "FROM python:3.12-slim-bookworm\n"
CU126 = "--index-url https://download.pytorch.org/whl/cu126"
WHL = "https://download.pytorch.org/whl"
CU128, CPU = f"--index-url {WHL}/cu128", f"--index-url {WHL}/cpu"
BLACKWELL = "RTX 5090, driver 570.86.15, linux-x86_64"
TORCH = f"RUN pip install torch==2.9.0 {CU126}\n"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def found(text: str, target: str, catalogue: Catalogue, context: Path | None = None) -> tuple[Finding, ...]:
    return check.check_dockerfile(text, (describe_target(target, catalogue),), catalogue, context).findings


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
    assert "Python 3.8" in python.text and python.remedies[0] == "FROM nvidia/cuda:12.1.1-devel-ubuntu22.04"
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
        ("FROM nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04\n", ADA, ["image-driver"]),
        ("FROM nvidia/cuda:13.0.2-base-ubuntu24.04\nENV NVIDIA_DISABLE_REQUIRE=1\n", ADA, []),
        ("FROM nvidia/cuda:latest\n", ADA, ["image-unknown"]),
        ("FROM nvidia/cuda:99.1.0-base-ubuntu30.04\n", ADA, []),  # newer than the facts
        ("ARG V\nFROM nvidia/cuda:${V}-base-ubuntu22.04\n", ADA, []),
        ("FROM nvidia/cuda@sha256:aa\n", ADA, []),
        ("FROM python:3.12-slim\n", ADA, []),
        # The torch that the image brings.
        ("FROM pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime\n", BLACKWELL, ["image-torch"]),
        ("FROM pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime\n", ADA, []),
        (f"FROM pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime\nRUN pip install torch==2.11.0 {CU128}\n", BLACKWELL, []),
        # The builds that pip takes.
        (PYTHON + "RUN pip install torch==2.11.0\n", "V100, driver 580.65.06, linux-x86_64", ["build-does-not-run"]),
        (PYTHON + TORCH, "V100, driver 535.104.05, linux-x86_64", []),
        (PYTHON + "RUN pip install torch==1.7.1\n", ADA, ["unpublished-build"]),  # not for Python 3.12
        (PYTHON + f"RUN pip install torch==2.14.1 torchvision {CU126}\n", ADA, []),
        (
            PYTHON + "RUN pip install torch==2.9.0+cu126 --extra-index-url https://download.pytorch.org/whl/cu126\n",
            ADA,
            [],
        ),
        (
            PYTHON + "RUN pip install torch==2.1.0+cu118 -f https://download.pytorch.org/whl/torch_stable.html\n",
            ADA,
            ["unpublished-build"],
        ),
        (PYTHON + "RUN pip install --pre torch -i https://download.pytorch.org/whl/nightly/cu128\n", ADA, []),
        (PYTHON + "RUN pip install torch==99.0 torch==2.99.0.dev1\n", ADA, []),  # newer than the facts
        (PYTHON + "RUN pip install torch==2.2.3\n", ADA, ["unpublished-build"]),  # there was none
        (PYTHON + f"RUN pip install torch==2.9.0 torchvision {CPU}\n", ADA, ["cpu-build"]),
        (PYTHON + f"RUN pip install torch==2.9.0 {CU126} && pip install triton\n", "H100, driver 535.104.05", []),
        (PYTHON + "RUN pip install torch==2.6.0 torchvision\n", "V100, driver 535.104.05, linux-x86_64", []),
        (
            "FROM ubuntu:20.04\nRUN uv venv --python 3.12 /v && uv pip install --torch-backend cu126 torch==2.9.0\n",
            ADA,
            [],
        ),
        (PYTHON + TORCH + "RUN pip install torch\n", ADA, []),  # is there
        (PYTHON + TORCH + "RUN pip install -U torch\n", ADA, ["build-does-not-run"]),
        ("FROM pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime\nRUN pip install torch torchvision\n", ADA, []),
        ("FROM own/image:1\nRUN pip install torch\n", ADA, ["build-does-not-run"]),
        # Triton: alone it is what runs, beside torch it is what torch.compile needs; with another ptxas, neither.
        (PYTHON + "RUN pip install triton==3.7.1\n", BLACKWELL, ["build-does-not-run"]),
        (
            PYTHON + "RUN pip install torch==2.9.0 -i ${X}\nRUN pip install triton==3.7.1\n",
            BLACKWELL,
            ["triton-does-not-run"],
        ),
        (PYTHON + "RUN pip install triton==3.7.1\nENV TRITON_PTXAS_BLACKWELL_PATH=/p\n", BLACKWELL, []),
        ("FROM python:3.8-slim-bookworm\n", ADA, ["image-retired"]),
        (PYTHON + "RUN uv pip install --torch-backend auto torch\n", ADA, ["backend-auto"]),
        (PYTHON + f"RUN pip install torch==2.13.0 -i {WHL}/cu129\n", BLACKWELL, ["triton-does-not-run"]),
        # What is compiled, and for what.
        (CUDA + TORCH + "RUN pip install --no-build-isolation ./ext\n", NEWER, ["arch-list-unset"]),
        (CUDA + TORCH + "RUN TORCH_CUDA_ARCH_LIST=8.9 pip install --no-build-isolation ./ext\n", NEWER, []),
        (CUDA + TORCH + "ENV TORCH_CUDA_ARCH_LIST=9.0\nRUN pip install --no-build-isolation .\n", NEWER, ["arch-list"]),
        (
            CUDA + TORCH + "RUN pip install --no-build-isolation torch-scatter\n",
            NEWER,
            ["cuda-not-forced", "arch-list-unset"],
        ),
        (CUDA + TORCH + "RUN FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=8.9 pip install torch-scatter\n", NEWER, []),
        (
            CUDA + TORCH + "RUN pip install torch-scatter -f https://data.pyg.org/whl/torch-2.9.0+cu126.html\n",
            NEWER,
            [],
        ),
        (
            CUDA + TORCH + "RUN pip install --no-build-isolation flash-attn deepspeed\n",
            NEWER,
            [],
        ),  # have their own list
        (PYTHON + TORCH + "RUN pip install --no-build-isolation .\n", ADA, []),  # no nvcc: no CUDA code
        (CUDA + "RUN nvcc --version\n", NEWER, []),
        (CUDA + "RUN nvcc -arch=native a.cu\n", NEWER, ["nvcc-arch"]),
        (CUDA + "RUN nvcc -arch=all a.cu && cmake -DCMAKE_CUDA_ARCHITECTURES=86 ..\n", NEWER, []),
        (CUDA + "RUN cmake -DCMAKE_CUDA_ARCHITECTURES=90 ..\n", NEWER, ["nvcc-arch"]),
        (CUDA + "RUN nvcc -gencode arch=compute_89,code=sm_89 a.cu\n", NEWER, []),
        (CUDA + "RUN nvcc -arch=sm_90 a.cu\n", NEWER, ["nvcc-arch"]),
        (CUDA + "RUN nvcc -arch=sm_100 a.cu\n", "B200, driver 570.86, linux-x86_64", ["nvcc-arch"]),  # 12.6 knows none
        # A later layer that replaces torch.
        (PYTHON + TORCH + "RUN pip install -r requirements.txt\n", ADA, ["torch-unheld"]),
        (PYTHON + TORCH + "RUN pip install -r requirements.txt -c held.txt\n", ADA, []),
        (PYTHON + TORCH + "RUN pip install --no-deps -r requirements.txt\n", ADA, []),
        (PYTHON + TORCH + "RUN pip install torchvision==0.20.0\n", ADA, ["torch-replaced"]),
        (PYTHON + TORCH + "RUN pip install torchvision==0.24.0\n", ADA, []),
        (PYTHON + "RUN conda install c::pytorch=2.5\nRUN pip install -r r.txt\n", ADA, ["torch-unheld"]),
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


def test_requirement_files_and_setup_of_the_context_are_read(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "setup.py").write_text("setup(ext_modules=[CUDAExtension('a', ['a.cu'])])")
    (tmp_path / "requirements.txt").write_text("numpy\ntorch==2.0.0+cu121\n")
    text = CUDA + "COPY . /app\nWORKDIR /app\nRUN pip install -r requirements.txt --extra-index-url " + f"{WHL}/cu121\n"
    [build] = found(text, NEWER, catalogue, tmp_path)
    assert (build.line, build.code) == (4, "unpublished-build") and build.text.startswith("requirements.txt:2: ")
    assert not found(text, NEWER, catalogue)
    extension = CUDA + TORCH + "COPY ext ext\nRUN pip install --no-build-isolation ./ext\n"
    assert [(f.code, f.level) for f in found(extension, NEWER, catalogue, tmp_path)] == [("arch-list-unset", "error")]
    (tmp_path / "ext" / "setup.py").write_text("setup()")
    assert not found(extension, NEWER, catalogue, tmp_path)
    (tmp_path / "requirements.txt").write_text("numpy\ntorch>=2\n")
    later = PYTHON + TORCH + "COPY requirements.txt .\nRUN pip install -r requirements.txt\n"
    assert not found(later, ADA, catalogue, tmp_path), "the torch that is there serves"
    (tmp_path / "requirements.txt").write_text("torch==2.8.0\n")
    assert [f.code for f in found(later, ADA, catalogue, tmp_path)] == ["torch-replaced"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("RUN conda install pytorch\n", "--manager conda"),
        ("RUN uv sync\n", "lock file"),
        ("RUN pip install -r requirements.txt\n", "--context"),
        ("ARG V\nRUN pip install torch==${V}\n", "its version is given"),
        ("RUN pip install torch -i https://own.example/simple\n", "no facts"),
    ],
)
def test_what_is_not_judged_is_said(catalogue: Catalogue, text: str, says: str) -> None:
    report = check.check_dockerfile(PYTHON + text, (describe_target(ADA, catalogue),), catalogue)
    assert not report.findings
    [one] = report.unjudged
    assert says in one.text and "not judged" in describe(report, "Dockerfile")


def test_no_machine_is_no_yes(catalogue: Catalogue) -> None:
    report = check.check_dockerfile(PYTHON, (Machine(),), catalogue)
    assert "--target" in report.unjudged[0].text


def test_a_remedy_of_a_companion_goes_with_the_torch(catalogue: Catalogue) -> None:
    text = PYTHON + f"RUN pip install torch==2.8.0 -i {WHL}/cu128\nRUN pip install torchaudio==2.8.0 -i {WHL}/cu129\n"
    [finding] = found(text, BLACKWELL, catalogue)
    assert finding.remedies == (f"pip install torchaudio==2.8.0+cu128 --index-url {WHL}/cu128",)


def test_a_stage_that_is_built_on_another_is_not_told_twice(catalogue: Catalogue) -> None:
    text = WIDELY_COPIED.replace("ubuntu20.04\n", "ubuntu20.04 AS one\n", 1) + "FROM one\nRUN pip install -r more.txt\n"
    assert [f.line for f in found(text, ADA, catalogue)] == [1, 3, 5, 7]


@pytest.mark.parametrize("plan", [GOOD, compiled()])
@pytest.mark.parametrize("form", ["dockerfile", "dockerfile-snippet"])
def test_what_a_plan_is_written_as_has_no_fault(catalogue: Catalogue, plan: Plan, form: str) -> None:
    text = ("" if form == "dockerfile" else "FROM debian:12\n") + render(plan, form)
    assert check.check_dockerfile(text, plan.machines, catalogue).findings == ()


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
