"""Findings in Dockerfiles, for machines: each check on a file that has the fault and on one that has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve import check_dockerfile, describe_target, dockerfile
from envsolve.cli.main import run
from envsolve.dockerfile.model import Finding, describe
from envsolve.facts.catalogue import Catalogue
from envsolve.formats import render
from envsolve.machine.model import Machine
from envsolve.planning.plan import Plan
from tests.formats.plans import GOOD
from tests.formats.test_containers import compiled

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
    return dockerfile.check_dockerfile(text, (describe_target(target, catalogue),), catalogue, context).findings


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
    assert "only as cpu, cu117, cu118" in build.text
    assert build.remedies[0] == "pip install torch==2.0.0+cu117 --index-url https://download.pytorch.org/whl/cu117"
    assert (arch.line, arch.code) == (5, "nvcc-arch")
    assert "sm_75" in arch.text and "8.9" in arch.text
    assert arch.remedies == ("-arch=sm_89",)


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
        # pytorch/pytorch has torchvision as well.
        ("FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime\nRUN pip install torchvision\n", ADA, []),
        (
            "FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime\nRUN pip install torchvision==0.20.0\n",
            ADA,
            ["torch-replaced"],
        ),
        (PYTHON + "RUN conda install c::pytorch=2.5\nRUN pip install -r r.txt\n", ADA, ["torch-unheld"]),
        # The libc of the image, whatever the machine's.
        ("FROM python:3.12-alpine3.20\nRUN pip install torch==2.9.0\n", ADA, ["image-libc"]),
        ("FROM alpine\nRUN apk add py3-pip && pip install torch\n", ADA, ["image-libc"]),
        ("FROM alpine\nRUN pip install numpy\n", ADA, []),
        (f"FROM nvidia/cuda:12.1.1-devel-centos7\nRUN pip install torch==2.9.0 {CU126}\n", NEWER, ["image-libc"]),
        (f"FROM nvidia/cuda:12.1.1-devel-centos7\nRUN pip install torch==2.5.0 -i {WHL}/cu121\n", NEWER, []),
        (PYTHON + TORCH, f"{ADA}, glibc 2.17", []),
        (PYTHON + TORCH, f"{ADA}, musl 1.2", []),
        # What is no version, and no code of a GPU.
        (PYTHON + "RUN pip install torch===-2.0.0+cu121\n", ADA, []),
        (CUDA + "RUN nvcc -arch=sm_5 a.cu && nvcc -gencode arch=compute_x a.cu\n", NEWER, ["nvcc-arch"] * 2),
        (CUDA + "RUN cmake -DCMAKE_CUDA_ARCHITECTURES=5 ..\n", NEWER, []),
        # What no release in a range has.
        (PYTHON + "RUN pip install 'torch>=2.0,<2.1'\n", ADA, ["unpublished-build"]),  # none for Python 3.12
        (PYTHON + "RUN pip install torch==2.0.*\n", ADA, ["unpublished-build"]),
        (PYTHON + "RUN pip install 'torch>=99' 'torch!=2.0.0,>99'\n", ADA, []),  # newer than the facts
        # pip's own configuration.
        (PYTHON + f"RUN pip config set global.index-url {WHL}/cu126 && pip install torch==2.9.0+cu126\n", ADA, []),
        (
            PYTHON + f"COPY <<EOF /etc/pip.conf\n[global]\nextra-index-url = {WHL}/cu126\nEOF\n"
            "RUN pip install torch==2.9.0+cu126\n",
            ADA,
            [],
        ),
        (PYTHON + "COPY pip.conf /etc/\nRUN pip install torch==2.9.0+cu126\n", ADA, []),  # which is not there
        # What the file itself requires of the driver, and a lock that is not there.
        (PYTHON + "ENV NVIDIA_REQUIRE_CUDA=cuda>=12.8\n", ADA, ["image-driver"]),
        (PYTHON + "ENV NVIDIA_REQUIRE_CUDA=cuda>=12.1\n", ADA, []),
        # Variables.
        ('ARG V=2\nFROM python:3.12-slim\nRUN pip install "torch==${V}"\n', ADA, ["argument-scope"]),
        ("ARG V=2.9.0\nFROM python:3.12-slim\nARG V\nRUN pip install numpy==$V\n", ADA, []),
        (PYTHON + 'ARG WHAT="numpy torch==2.2.3"\nRUN pip install $WHAT\n', ADA, ["unpublished-build"]),
        # Whose image it is, and what does not belong in it.
        (f"FROM --platform=linux/arm64 python:3.12-slim\n{TORCH}", ADA, ["image-platform"]),
        (f"FROM --platform=$BUILDPLATFORM python:3.12-slim\n{TORCH}", ADA, []),
        ("FROM --platform=linux/amd64 a AS a\nFROM a\n", "GH200, linux-aarch64", ["image-platform"]),
        ("FROM --platform=linux/amd64 a AS a\nFROM b\n", "GH200, linux-aarch64", []),
        ("FROM ubuntu:22.04\nRUN apt-get install -y nvidia-driver-535 cuda\n", ADA, ["driver-in-image"] * 2),
        ("FROM ubuntu:22.04\nRUN apt-get install -y cuda-toolkit-12-4 nvidia-cuda-toolkit\n", ADA, []),
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
        ("RUN conda install pytorch\n", "which build conda installs"),
        ("RUN conda install faiss-gpu\n", "--manager conda"),
        ("RUN conda env create -f environment.yml\n", "not in the build context"),
        ("RUN pip install own-tools\n", "the dependencies of own-tools are not known"),
        ("RUN uv sync\n", "lock file"),
        ("COPY . .\nRUN bash scripts/install.sh\n", "does not read scripts"),
        ("RUN pip install -r requirements.txt\n", "--context"),
        ("ARG V\nRUN pip install torch==${V}\n", "its version is set only"),
        ("RUN pip install torch -i https://own.example/simple\n", "no facts"),
        ("RUN pip install $WHAT\n", "$WHAT is set only"),
        ("RUN for one in torch torchvision; do pip install $one; done\n", "$one is set only"),
        ("RUN pip install torch==`cat version`x\n", "its version is set only"),
        ("RUN pip install torch==2.0.0-cu121\n", "not a requirement"),
        ("RUN pip install torch==99\n", "no facts about torch"),
        ("RUN pip install torch==1.3.1\n", "no facts about torch"),
        ("RUN pip install https://a/torch-2.0.0%2Bcu118-cp310-cp310-linux_x86_64.whl\n", "+cu118"),
        ("RUN pip install ./torch-2.0.0-cp310-cp310-linux_x86_64.whl\n", "given by URL"),
        ("RUN pip install .\n", "does not read its dependencies"),
        ("RUN pip download torch\n", "in a way that envsolve"),
        ("RUN <<EOF python3\nimport os\nos.system('pip install torch')\nEOF\n", "in a way that envsolve"),
        ("RUN <<A cat > /x && bash <<B\nhello\nA\npip install torch\nB\n", "in a way that envsolve"),
        ("ONBUILD RUN pip install torch\n", "ONBUILD"),
        ("RUN <<EOF\npip install torch==2.9.0\n", "not an instruction"),  # which never ends
        ("{% if gpu %}\n{% endif %}\n", "not an instruction"),
        ("FROM\n", "no image name"),
    ],
)
def test_what_is_not_judged_is_said(catalogue: Catalogue, text: str, says: str) -> None:
    report = dockerfile.check_dockerfile(PYTHON + text, (describe_target(ADA, catalogue),), catalogue)
    assert not report.findings
    [one] = report.unjudged
    text = describe(report, "Dockerfile")
    assert says in one.text and "could not be checked" in text and "nothing would fail" not in text


def test_a_lock_must_be_copied(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("version = 1\n")
    text = PYTHON + "WORKDIR /app\nCOPY pyproject.toml .\n"
    [missing] = found(text + "RUN uv sync --frozen\n", ADA, catalogue, tmp_path)
    assert (missing.code, missing.level) == ("lock-not-copied", "error")
    [other] = found(text + "RUN uv sync\n", ADA, catalogue, tmp_path)
    assert (other.code, other.level) == ("lock-not-copied", "warning")
    assert not found(text + "COPY uv.lock .\nRUN uv sync --frozen\n", ADA, catalogue, tmp_path)
    (tmp_path / "uv.lock").unlink()
    assert not found(text + "COPY uv.lock .\nRUN uv sync --frozen\n", ADA, catalogue, tmp_path), "of another context"
    assert not found(text + "COPY --from=one /locks /app\nRUN uv sync --frozen\n", ADA, catalogue, tmp_path)


def test_an_unknown_image_is_not_judged(catalogue: Catalogue) -> None:
    report = dockerfile.check_dockerfile("FROM own/image:1\n", (describe_target(ADA, catalogue),), catalogue)
    assert "contents of this image" in report.unjudged[0].text
    report = dockerfile.check_dockerfile("FROM python:3.12-slim\n", (describe_target(ADA, catalogue),), catalogue)
    assert report.unjudged == ()


def test_what_installs_nothing_is_no_matter() -> None:
    text = (
        PYTHON
        + "RUN apt-get install -y python3-pip python3-wheel\nRUN pip config set install.timeout 9\nRUN pip list\n"
    )
    report = dockerfile.check_dockerfile(text, (describe_target(ADA, Catalogue()),), Catalogue())
    assert (report.findings, report.unjudged) == ((), ())


@pytest.mark.parametrize("machine", [Machine(), Machine(gpus=())])
def test_no_machine_is_no_yes(catalogue: Catalogue, machine: Machine) -> None:
    report = dockerfile.check_dockerfile(PYTHON + "RUN pip install torch==2.0.0+cu121\n", (machine,), catalogue)
    assert "--target" in report.unjudged[0].text
    assert "+cpu" not in report.findings[0].remedies[0], "nobody meant that"


@pytest.mark.parametrize(
    ("text", "target", "remedy"),
    [
        (
            f"FROM nvidia/cuda:12.1.1-devel-centos7\nRUN pip install torch==2.9.0 {CU126}\n",
            NEWER,
            "12.1.1-devel-ubuntu22.04",
        ),
        ("FROM python:3.11-alpine\nRUN pip install torch\n", NEWER, "FROM python:3.11-slim-bookworm"),
        (
            WIDELY_COPIED,
            "H100, driver 580.65.06, linux-x86_64",
            "nvidia/cuda:12.5.1-devel-ubuntu24.04",
        ),  # 12.1.1 has none
        (PYTHON + "RUN pip install torch==2.9.0+cu126\n", ADA, f"pip install torch==2.9.0+cu126 {CU126}"),
        ("FROM nvidia/cuda:12.6.9-devel-ubuntu22.04\n", NEWER, "-devel-ubuntu22.04"),
        (CUDA + "RUN nvcc -arch compute_75 -code=sm_75 a.cu\n", NEWER, "-gencode arch=compute_89,code=sm_89"),
    ],
)
def test_the_remedy_is_the_least_change(catalogue: Catalogue, text: str, target: str, remedy: str) -> None:
    assert remedy in found(text, target, catalogue)[0].remedies[0]


def test_a_card_beside_others_is_added_to_them(catalogue: Catalogue) -> None:
    machines = [describe_target(f"{gpu}, driver 560.35.03, linux-x86_64", catalogue) for gpu in ("RTX 4090", "H100")]
    both = dockerfile.check_dockerfile(CUDA + "RUN nvcc -arch=sm_75 a.cu\n", machines, catalogue).findings
    assert [f.remedies for f in both] == [(f"-gencode arch=compute_{cc},code=sm_{cc}",) for cc in (89, 90)]


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
    assert dockerfile.check_dockerfile(text, plan.machines, catalogue).findings == ()


def test_in_words(catalogue: Catalogue) -> None:
    report = dockerfile.check_dockerfile(WIDELY_COPIED, (describe_target(ADA, catalogue),), catalogue)
    text = describe(report, "Dockerfile")
    assert "Dockerfile:3: error: " in text and "    -> pip install torch==2.0.0+cu117" in text


def exit_code(*words: str) -> object:
    with pytest.raises(SystemExit) as left:
        run(["check-dockerfile", *words, "--target", ADA])
    return left.value.code


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(PYTHON + TORCH)
    assert not check_dockerfile(path, (describe_target(ADA),)).findings
    assert exit_code(str(path)) == 0
    assert "nothing would fail" in capsys.readouterr().out
    path.write_text(WIDELY_COPIED)
    assert exit_code(str(path), "--format", "json") == 4
    assert '"envsolve.dockerfile-check/1"' in capsys.readouterr().out
    assert exit_code(str(tmp_path / "none")) == 2
    assert "give a Dockerfile" in capsys.readouterr().err
