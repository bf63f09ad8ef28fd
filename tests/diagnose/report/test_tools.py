"""What tools say of their surroundings: banners, environment reports, and the plans of conda and mamba."""

from __future__ import annotations

import pytest

from envsolve.diagnose.model import ReportFacts
from envsolve.diagnose.report.read import read_report
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Platform, Toolkit


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def cards(report: ReportFacts) -> list[tuple[str | None, str | None]]:
    return [(gpu.name, gpu.compute_capability) for gpu in report.machine.gpus or ()]


def versions(report: ReportFacts) -> dict[str, str]:
    return {name: version.value for name, version in report.installed.items()}


def test_unsloth(catalogue: Catalogue) -> None:
    report = read_report(
        r"""
==((====))==  Unsloth 2025.3.9: Fast Qwen2 patching. Transformers: 4.49.0. vLLM: 0.7.3.
   \\   /|    NVIDIA GeForce GTX 1070. Num GPUs = 2. Max memory: 7.909 GB. Platform: Linux.
O^O/ \_/ \    Torch: 2.5.1+cu124. CUDA: 6.1. CUDA Toolkit: 12.4. Triton: 3.1.0
""",
        catalogue,
    )
    assert cards(report) == [("NVIDIA GeForce GTX 1070", "6.1")] * 2
    assert (versions(report)["torch"], versions(report)["triton"]) == ("2.5.1+cu124", "3.1.0")
    assert report.cuda is not None and report.cuda.value == "12.4"
    older = read_report(
        "   \\\\   /|    GPU: NVIDIA RTX A6000. Max memory: 47.536 GB. Platform = Linux.\n"
        "O^O/ \\_/ \\    Pytorch: 2.1.0+cu118. CUDA = 8.6. CUDA Toolkit = 11.8.",
        catalogue,
    )
    assert cards(older) == [("NVIDIA RTX A6000", "8.6")]
    assert versions(older) == {"torch": "2.1.0+cu118"}


def test_deepspeed(catalogue: Catalogue) -> None:
    report = read_report(
        "torch version .................... 2.4.0+cu121\ndeepspeed info ................... 0.15.1, unknown, unknown\n"
        "torch cuda version ............... 12.1\nnvcc version ..................... 11.8",
        catalogue,
    )
    assert versions(report)["torch"] == "2.4.0+cu121"
    assert (report.cuda and report.cuda.value, report.nvcc and report.nvcc.value) == ("12.1", "11.8")
    failed = read_report(
        "Exception: >- DeepSpeed Op Builder: Installed CUDA version 12.3 does not match the version torch was compiled"
        " with 11.8, unable to compile\n$ nvcc --version\nCuda compilation tools, release 11.8, V11.8.89",
        catalogue,
    )
    assert (failed.cuda and failed.cuda.value, failed.nvcc and failed.nvcc.value) == ("11.8", "12.3")


def test_xformers_tells_what_it_found(catalogue: Catalogue) -> None:
    report = read_report(
        "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
        "    PyTorch 2.2.0+cu121 with CUDA 1201 (you have 2.1.2+cpu)\n    Python  3.11.7 (you have 3.10.6)",
        catalogue,
    )
    assert versions(report) == {"torch": "2.1.2+cpu"}
    assert report.machine.python == "3.10"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Device: cuda:0 NVIDIA GeForce RTX 2060 : cudaMallocAsync", [("NVIDIA GeForce RTX 2060", "7.5")]),
        ("- **Name:** cuda:0 NVIDIA GeForce RTX 5070 Ti : native", [("NVIDIA GeForce RTX 5070 Ti", "12.0")]),
        (
            "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes\n"
            "  Device 1: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes",
            [("NVIDIA GeForce RTX 4090", "8.9"), ("NVIDIA GeForce RTX 3060", "8.6")],
        ),
        (
            "Device 0: NVIDIA H100 80GB HBM3 (00000000:1b:00)\nDevice 1: NVIDIA H100 80GB HBM3 (00000000:29:00)",
            [("NVIDIA H100 80GB HBM3", "9.0")] * 2,
        ),
        ('Device 0: "Tesla T4"', [("Tesla T4", "7.5")]),
        ("id 0     b'NVIDIA RTX A2000'                              [SUPPORTED]", [("NVIDIA RTX A2000", "8.6")]),
        (
            'level=INFO source=types.go:131 msg="inference compute" library=cuda compute=8.9 driver=12.4'
            ' name="NVIDIA GeForce RTX 4090" total="23.6 GiB"',
            [("NVIDIA GeForce RTX 4090", "8.9")],
        ),
        (
            "name: Tesla V100-SXM2-16GB, pci bus id: 0000:00:1e.0, compute capability: 7.0",
            [("Tesla V100-SXM2-16GB", "7.0")],
        ),
        ("local machine with 2x 5090s", [("NVIDIA GeForce RTX 5090", "12.0")] * 2),
        ("an image of 4x 1080p", []),
        ("Device 0: the first disk", []),
    ],
)
def test_cards_of_tools(catalogue: Catalogue, text: str, expected: list[tuple[str, str]]) -> None:
    assert cards(read_report(text, catalogue)) == expected


def test_conda_info(catalogue: Catalogue) -> None:
    report = read_report(
        "         python version : 3.12.2.final.0\n       virtual packages : __archspec=1=zen3\n"
        "                          __cuda=12.4=0\n                          __glibc=2.35=0\n"
        "               platform : linux-64\n",
        catalogue,
    )
    assert report.machine.driver == Driver(None, "12.4")
    assert report.machine.platform == Platform("linux", "x86_64", "glibc 2.35")
    assert report.machine.python == "3.12"


def test_a_missing_virtual_package_is_no_driver(catalogue: Catalogue) -> None:
    for text in ("nothing provides __cuda >=12 needed by pytorch", "__cuda =* *, which is missing on the system."):
        assert read_report(text, catalogue).machine.driver is None


@pytest.mark.parametrize(
    ("text", "expected", "cuda"),
    [
        ("  pytorch    conda-forge/linux-64::pytorch-2.5.1-cuda126_py312h1763f6d_300", {"pytorch": "2.5.1"}, "12.6"),
        ("  pytorch    pytorch/linux-64::pytorch-2.1.0-py3.10_cuda12.1_cudnn8.9.2_0", {"pytorch": "2.1.0"}, "12.1"),
        (
            "  pytorch    pytorch::pytorch-1.12.1-py3.10_cuda11~ --> pkgs/main::pytorch-1.12.1-cpu_py310h9dbd814_1",
            {"pytorch": "1.12.1"},
            "none",
        ),
        ("  cudatoolkit     10.2.89-h8f6ccaa_8 --> 11.6.0-hecad31d_10", {"cudatoolkit": "11.6.0"}, None),
        ("  + pytorch   2.5.1  cpu_mkl_py312h446997d_102  conda-forge   28MB", {"pytorch": "2.5.1"}, "none"),
        (
            "  - pytorch   2.5.1  cuda126_py312h1763f6d_300  conda-forge   Cached\n"
            "  + pytorch   2.4.1  cpu_generic_py312h2b7556c_3  conda-forge   27MB",
            {"pytorch": "2.4.1"},
            None,
        ),
        ("    torchvision:          0.2.1-py36_1                        pytorch", {"torchvision": "0.2.1"}, None),
        ("[pip] torch (1.0.0.dev20181022)", {"torch": "1.0.0.dev20181022"}, None),
        (
            "[conda] pytorch                   1.3.1           py3.7_cuda10.1.243_cudnn7.6.3_0",
            {"pytorch": "1.3.1"},
            "10.1",
        ),
    ],
)
def test_plans_of_conda(catalogue: Catalogue, text: str, expected: dict[str, str], cuda: str | None) -> None:
    report = read_report(text, catalogue)
    assert versions(report) == expected
    assert cuda is None or (report.cuda is not None and report.cuda.value == cuda)


def test_nvbandwidth(catalogue: Catalogue) -> None:
    report = read_report(
        "CUDA Runtime Version: 13000\nCUDA Driver Version: 13000\nDriver Version: 580.126.09", catalogue
    )
    assert report.machine.driver == Driver("580.126.09", "13.0")
    assert report.machine.toolkits is None


def test_one_toolkit_and_one_path_are_the_same(catalogue: Catalogue) -> None:
    report = read_report(
        "nvcc version ..................... 11.8\nerror: command '/opt/cuda/bin/nvcc' failed", catalogue
    )
    assert report.machine.toolkits == (Toolkit("11.8", "/opt/cuda", True),)
