"""What an image contains in the end: by its publisher, and by what packages require in turn."""

from __future__ import annotations

import pytest

from envsolve import describe_target, dockerfile
from envsolve.dockerfile.model import Report
from envsolve.facts.catalogue import Catalogue

PYTHON = "FROM python:3.11-slim-bookworm\n"
NGC = "FROM nvcr.io/nvidia/pytorch:25.09-py3\n"
OLD, NEW = "RTX 3090, driver 535.104, linux-x86_64", "RTX 3090, driver 580.95, linux-x86_64"
CU121 = "--index-url https://download.pytorch.org/whl/cu121"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def check(text: str, target: str, catalogue: Catalogue) -> Report:
    return dockerfile.check_dockerfile(text, (describe_target(target, catalogue),), catalogue)


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
        # What has no GPU code, and what lacks a library.
        ("RUN pip install 'jax>=0.11'\n", NEW, ["gpu-unused"]),
        ("RUN pip install 'jax[cuda12]>=0.11'\n", NEW, []),
        ("RUN pip install 'jax[cuda13]>=0.11'\n", OLD, ["build-does-not-run"]),
        ("RUN pip install faster-whisper\n", NEW, ["gpu-unused"]),
        ("RUN pip install faster-whisper nvidia-cublas-cu12\n", NEW, []),
        ("RUN pip install onnxruntime\n", NEW, ["gpu-unused"]),
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
        ("FROM ubuntu:22.04\nRUN apt-get install -y libnvidia-ml-dev\n", NEW, []),  # a header and a stub
    ],
)
def test_what_a_publisher_put_there(catalogue: Catalogue, text: str, target: str, codes: list[str]) -> None:
    findings = check(text, target, catalogue).findings
    assert [finding.code for finding in findings] == codes, findings
    assert all(finding.remedies for finding in findings)


def test_another_release_of_the_image_is_offered(catalogue: Catalogue) -> None:
    [finding] = check(NGC, OLD, catalogue).findings
    assert finding.remedies == ("FROM nvcr.io/nvidia/pytorch:25.07-py3",)
    assert not check(f"{finding.remedies[0]}\n", OLD, catalogue).findings
