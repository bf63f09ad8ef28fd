"""What an image contains in the end: by its publisher, and by what packages require in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.facts.catalogue import Catalogue
from tests.dockerfile.conftest import check

PYTHON = "FROM python:3.11-slim-bookworm\n"
FAMILY = "RUN pip install torch torchvision torchaudio\n"
COMPILED = f"{FAMILY}RUN TORCH_CUDA_ARCH_LIST=8.0 pip install flash-attn --no-build-isolation\n"
NGC = "FROM nvcr.io/nvidia/pytorch:25.09-py3\n"
OLD, NEW = "RTX 3090, driver 535.104, linux-x86_64", "RTX 3090, driver 580.95, linux-x86_64"
CU121 = "--index-url https://download.pytorch.org/whl/cu121"


@pytest.mark.parametrize(
    ("text", "target", "codes"),
    [
        # The newest torch of the default index is for CUDA 13.
        ("RUN pip install ultralytics\n", OLD, ["build-does-not-run"]),
        ("RUN pip install ultralytics\n", NEW, []),
        ("RUN pip install --no-deps ultralytics\n", OLD, []),
        ("RUN pip install accelerate==0.26.0\n", OLD, ["build-does-not-run"]),  # of a release that is not recorded
        (f"RUN pip install torch==2.4.0 {CU121}\nRUN pip install ultralytics\n", OLD, []),  # pip keeps what is there
        ("RUN pip install 'torch<2.5' ultralytics\n", OLD, []),
        ("RUN pip install flask\n", OLD, []),
        # The torch that a later line replaces does not matter, and one that could not be read may be there.
        (f"RUN pip install accelerate\nRUN pip install -U torch==2.4.0 {CU121}\n", OLD, []),
        (f"RUN pip install torch==2.11.0\nRUN pip install torch==2.4.0 {CU121}\n", OLD, []),
        (f"RUN pip install torch==2.4.0 torchvision {CU121}\nRUN pip install torchvision==0.19.0 {CU121}\n", OLD, []),
        ("RUN pip install ultralytics\nRUN pip install torch\n", OLD, ["build-does-not-run"]),
        ("RUN pip install torch==2.11.0\nRUN pip install torch==2.11.0\n", OLD, ["build-does-not-run"]),
        ("RUN pip install --dry-run torch==2.11.0\n", OLD, []),
        # What has no GPU code, and what lacks a library.
        ("RUN pip install 'jax>=0.11'\n", NEW, ["gpu-unused"]),
        ("RUN pip install 'jax[cuda12]>=0.11'\n", NEW, []),
        ("RUN pip install 'jax[cuda13]>=0.11'\n", OLD, ["build-does-not-run"]),
        ("RUN pip install faster-whisper\n", NEW, ["gpu-unused"]),
        ("RUN pip install faster-whisper nvidia-cublas-cu12\n", NEW, []),
        ("RUN pip install onnxruntime\n", NEW, ["gpu-unused"]),
        ("RUN pip install tensorflow==2.15.0 -c held.cuda.txt\n", NEW, ["gpu-unused"]),  # a name of a file
        ("RUN pip install jax==0.4.26 jaxlib==0.4.26+cuda12.cudnn89 -f https://a/releases.html\n", NEW, []),
    ],
)
def test_what_packages_bring(catalogue: Catalogue, text: str, target: str, codes: list[str]) -> None:
    findings = check(PYTHON + text, target, catalogue).findings
    assert [finding.code for finding in findings] == codes, findings


def test_who_brings_it_is_said(catalogue: Catalogue) -> None:
    [finding] = check(f"{PYTHON}RUN pip install ultralytics\n", OLD, catalogue).findings
    assert finding.text.startswith("ultralytics requires torch>=1.8.0: torch ")


def test_an_unknown_image_may_have_the_libraries(catalogue: Catalogue) -> None:
    report = check("FROM own/image:1\nRUN pip install faster-whisper\n", NEW, catalogue)
    assert not report.findings
    assert any("ctranslate2: whether the image has libcublas.so.12" in one.text for one in report.unjudged)


@pytest.mark.parametrize(
    ("text", "target", "codes"),
    [
        (NGC, NEW, []),
        (NGC, OLD, ["image-driver"]),
        (NGC, "H100, driver 535.104, linux-x86_64", []),  # the compat libcuda in it serves data-centre GPUs
        ("FROM nvcr.io/nvidia/pytorch:22.05-py3\n", "H100, driver 535.104", ["image-gpu"]),
        ("FROM nvcr.io/nvidia/pytorch:22.05-py3 AS old\nFROM debian:12\n", "H100, driver 535.104", []),
        ("FROM nvcr.io/nvidia/pytorch:99.01-py3\n", OLD, []),  # newer than the facts
        (f"{NGC}RUN pip install accelerate torchvision\n", NEW, []),  # its own torch stays
        (f"{NGC}RUN TORCH_CUDA_ARCH_LIST=9.0 pip install --no-build-isolation ./ext\n", NEW, ["arch-list"]),
        (f"{NGC}RUN pip install --no-build-isolation ./ext\n", NEW, []),  # the image has a list
        # The devel images of PyTorch's ask the same of the driver as those of NVIDIA's that they are built on.
        ("FROM pytorch/pytorch:2.8.0-cuda12.9-cudnn9-devel\n", "RTX 3090, driver 570.86", ["image-driver"]),
        ("FROM pytorch/pytorch:2.8.0-cuda12.9-cudnn9-runtime\n", "RTX 3090, driver 570.86", []),
        ("FROM pytorch/pytorch:2.4.0-cuda12.1-cudnn9-runtime\nRUN pip install torchvision==0.19.0\n", OLD, []),
        # A build sees no driver, so a compat path in another stage does no harm.
        (
            "FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS b\nENV LD_LIBRARY_PATH=/usr/local/cuda/compat\n"
            "FROM nvidia/cuda:13.0.2-runtime-ubuntu24.04\n",
            NEW,
            [],
        ),
        # An environment of its own does not see the torch of the image.
        ("FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime\n", "RTX 5090, driver 570.86", ["image-torch"]),
        (
            "FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime\nRUN python3 -m venv /v\nENV PATH=/v/bin:$PATH\n"
            "RUN pip install torch==2.6.0\n",
            "RTX 5090, driver 570.86",
            ["build-does-not-run"],
        ),
        (
            "FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime\nRUN python3 -m venv --system-site-packages /v\n"
            "ENV PATH=/v/bin:$PATH\n",
            "RTX 5090, driver 570.86",
            ["image-torch"],
        ),
        ("FROM ubuntu:22.04\nRUN apt-get install -y libnvidia-ml-dev\n", NEW, []),  # a header and a stub
        # The torch of the image serves, so pip takes none.
        (f"FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel\n{COMPILED}", "A100, driver 550.54", []),
        (f"FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime\n{FAMILY}", "RTX 5090, driver 580.95", ["image-torch"]),
        (f"FROM hub.example.org:5000/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime\n{FAMILY}", NEW, []),
        (
            "FROM pytorch/pytorch:2.5.0-cuda12.4-cudnn9-runtime\nRUN pip install xformers==0.0.35\n",
            "H100, driver 550.54.15",
            ["build-does-not-run", "torch-replaced"],
        ),
        # Images that are older or newer than those that are recorded.
        ("FROM pytorch/pytorch:1.5-cuda10.1-cudnn7-runtime\n", "A100, driver 535.183", ["image-gpu"]),
        ("FROM pytorch/pytorch:0.4.1-cuda9-cudnn7-devel\n", "RTX 4090, driver 550.54", ["image-gpu"]),
        ("FROM pytorch/pytorch:1.5-cuda10.1-cudnn7-runtime\n", "V100, driver 470.199", []),
        ("FROM nvidia/cuda:13.1.1-base-ubuntu24.04\n", "RTX 5090, driver 580.95.05", ["image-driver"]),
        ("FROM python:3.12-slim\nRUN pip install sklearn\n", NEW, ["package-name"]),
    ],
)
def test_what_a_publisher_put_there(catalogue: Catalogue, text: str, target: str, codes: list[str]) -> None:
    findings = check(text, target, catalogue).findings
    assert [finding.code for finding in findings] == codes, findings
    assert all(finding.remedies for finding in findings)


def test_a_tag_without_a_distribution_means_ubuntu(catalogue: Catalogue) -> None:
    [unknown] = check("FROM nvidia/cuda:10.1-cudnn7-devel\n", OLD, catalogue).findings
    assert unknown.code == "image-unknown" and "-devel-ubuntu" in unknown.remedies[0]


def test_triton_is_no_reason_to_offer_an_old_torch(catalogue: Catalogue) -> None:
    pascal = "GTX 1080 Ti, driver 570.124.06, linux-x86_64"
    [image] = check("FROM pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime\n", pascal, catalogue).findings
    assert image.remedies[0] > "FROM pytorch/pytorch:2.1" and "-cuda12.6-" in image.remedies[0]


def test_what_runs_on_tensorflow_1_stays_there(catalogue: Catalogue) -> None:
    [image] = check("FROM nvcr.io/nvidia/tensorflow:20.12-tf1-py3\n", "H100, driver 535.183.01", catalogue).findings
    assert image.remedies == ("FROM nvcr.io/nvidia/tensorflow:23.03-tf1-py3",)


def test_another_release_of_the_image_is_offered(catalogue: Catalogue) -> None:
    [finding] = check(NGC, OLD, catalogue).findings
    assert finding.remedies == ("FROM nvcr.io/nvidia/pytorch:25.07-py3",)
    assert not check(f"{finding.remedies[0]}\n", OLD, catalogue).findings


def test_what_a_project_of_the_context_requires_is_read(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'own'\nversion = '1'\ndependencies = ['torch==2.6.0']\n"
        "[project.optional-dependencies]\nui = ['own-tools']\n"
    )
    text = f"{PYTHON}COPY . /app\nWORKDIR /app\nRUN pip install .\n"
    target = "RTX 5090, driver 570.86, linux-x86_64"
    report = check(text, target, catalogue, tmp_path)
    [finding] = report.findings
    assert finding.code == "build-does-not-run" and finding.text.startswith("own requires torch==2.6.0: torch 2.6.0 ")
    assert finding.remedies[0].startswith("change what own requires, then: pip install torch==")
    assert not report.unjudged
    [unknown] = check(text.replace("install .", "install .[ui]"), target, catalogue, tmp_path).unjudged
    assert unknown.text == "the dependencies of own-tools are not known"
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'own'\ndynamic = ['version', 'dependencies']\n")
    [unread] = check(text, target, catalogue, tmp_path).unjudged
    assert unread.text == ".: envsolve does not read its dependencies"


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("ubuntu:22.04", True),
        ("golang:1.24-bookworm", True),
        ("opensuse/leap:15.6", True),
        ("ghcr.io/astral-sh/uv:python3.12-bookworm-slim", True),
        ("rapidsai/rapidsai:cuda9.2-runtime-ubuntu16.04", False),  # the tag says what it is built on
        ("own/torch:ubuntu22.04", False),
    ],
)
def test_the_tag_does_not_say_what_somebody_put_on_a_distribution(
    catalogue: Catalogue, image: str, known: bool
) -> None:
    unjudged = [one.text for one in check(f"FROM {image}\n", NEW, catalogue).unjudged]
    assert unjudged == ([] if known else [f"{image}: the contents of this image are not known"])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("RUN cargo build --release --features cuda\n", "cargo: it is not known for which GPUs"),
        ("RUN cmake -B build . && make -C build\n", "cmake: it is not known for which GPUs"),
        ("RUN cmake -DCMAKE_CUDA_ARCHITECTURES=86 . && make\n", None),
    ],
)
def test_a_compiler_that_other_programs_run_is_not_judged(catalogue: Catalogue, line: str, says: str | None) -> None:
    unjudged = check(f"FROM nvidia/cuda:12.6.3-devel-ubuntu24.04\n{line}", NEW, catalogue).unjudged
    assert len(unjudged) == (says is not None) and all(one.text.startswith(says or "") for one in unjudged)
    assert not check(f"FROM ubuntu:22.04\n{line}", NEW, catalogue).unjudged


def test_a_torch_that_something_unread_may_have_brought_is_no_certain_fault(catalogue: Catalogue) -> None:
    text = f"{PYTHON}RUN pip install git+https://github.com/own/tools\nRUN pip install ultralytics\n"
    [finding] = check(text, OLD, catalogue).findings
    assert (finding.code, finding.level) == ("build-does-not-run", "warning")
    assert "if the image has no torch yet" in finding.text


@pytest.mark.parametrize("image", ["rocm/pytorch:rocm6.1_ubuntu22.04_py3.10", "docker.io/rocm/vllm:latest"])
def test_an_image_of_another_vendor_does_not_run_on_nvidias_gpus(catalogue: Catalogue, image: str) -> None:
    [finding] = check(f"FROM {image}\nRUN pip install numpy\n", NEW, catalogue).findings
    assert (finding.code, finding.level) == ("image-gpu", "error")
    assert "AMD's ROCm builds" in finding.text


def test_a_stage_below_may_be_of_another_vendor(catalogue: Catalogue) -> None:
    text = f"FROM rocm/pytorch:latest AS tools\n{PYTHON}RUN pip install numpy\n"
    assert not check(text, NEW, catalogue).findings
