"""Each layout, read whole."""

from __future__ import annotations

import pytest

from envsolve.diagnose.model import ReportFacts
from envsolve.diagnose.report.read import read_report
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Gpu, HostCompiler, Toolkit
from tests.diagnose.report import samples


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def cards(report: ReportFacts) -> list[tuple[str | None, str | None]]:
    return [(gpu.name, gpu.compute_capability) for gpu in report.machine.gpus or ()]


def versions(report: ReportFacts) -> dict[str, str]:
    return {name: version.value for name, version in report.installed.items()}


def platform(report: ReportFacts) -> dict[str, object]:
    return {
        name: value
        for name in ("os", "arch", "libc", "distro", "wsl", "container", "jetson")
        if (value := getattr(report.machine.platform, name, None)) is not None
    }


def test_collect_env(catalogue: Catalogue) -> None:
    report = read_report(samples.COLLECT_ENV, catalogue)
    assert platform(report) == {"os": "linux", "arch": "x86_64", "libc": "glibc 2.35", "distro": "ubuntu 22.04"}
    assert report.machine.driver == Driver("570.133.07", "12.8")
    assert cards(report) == [("NVIDIA GeForce RTX 3090", "8.6"), ("NVIDIA GeForce RTX 4090", "8.9")]
    assert report.machine.toolkits == (Toolkit("12.4", None, True),)
    assert report.machine.host_compilers == (HostCompiler("gcc", "11.4.0"), HostCompiler("clang", "14.0.0"))
    assert report.machine.python == "3.12"
    assert report.cuda is not None and report.cuda.value == "12.8"
    assert report.nvcc is not None and report.nvcc.value == "12.4"
    assert versions(report) == {
        "torch": "2.8.0+cu128",
        "numpy": "2.1.3",
        "nvidia-cublas-cu12": "12.8.4.1",
        "triton": "3.4.0",
        "vllm": "0.10.1.1",
    }
    assert report.variables["TORCH_CUDA_ARCH_LIST"].value == "7.0 7.5 8.0 8.6 9.0+PTX"
    assert report.variables["LD_LIBRARY_PATH"].value == "/usr/local/cuda/lib64:/usr/local/nvidia/lib64"


def test_every_fact_has_its_line(catalogue: Catalogue) -> None:
    report = read_report(samples.COLLECT_ENV, catalogue)
    assert (report.installed["torch"].where, report.installed["torch"].quote) == (
        "line 2",
        "PyTorch version: 2.8.0+cu128",
    )
    assert report.machine.sources["driver.version"] == "line 22"
    assert report.machine.sources["gpus"] == "line 19"
    assert report.machine.sources["driver.cuda"] == "catalogue (driver branch 570)"


def test_detectron2(catalogue: Catalogue) -> None:
    report = read_report(samples.DETECTRON2, catalogue)
    assert cards(report) == [("GeForce RTX 2080 Ti", "7.5")] * 2
    assert report.machine.driver == Driver("460.32.03", "11.2")
    assert report.machine.python == "3.8"
    assert versions(report) == {
        "torch": "1.8.1+cu111",
        "torchvision": "0.9.1+cu111",
        "detectron2": "0.5",
        "numpy": "1.19.5",
    }
    assert report.arch_list is not None and report.arch_list.value == ("sm_37", "sm_86", "compute_86")
    assert report.cuda is not None and report.cuda.value == "11.1"
    assert report.variables["CUDA_HOME"].value == "/usr/local/cuda-11.1"
    assert report.machine.toolkits == (Toolkit("11.1", "/usr/local/cuda-11.1"),)
    assert report.machine.host_compilers is None  # GCC 7.3 built PyTorch elsewhere


def test_mmcv_on_windows(catalogue: Catalogue) -> None:
    report = read_report(samples.MMCV_WINDOWS, catalogue)
    assert platform(report) == {"os": "windows", "arch": "x86_64"}
    assert cards(report) == [("NVIDIA GeForce RTX 3060 Laptop GPU", "8.6")]
    assert report.machine.host_compilers == (HostCompiler("msvc", "19.28"),)
    assert report.nvcc is not None and report.nvcc.value == "11.1"
    assert versions(report) == {"torch": "1.8.1+cu111", "torchvision": "0.9.1+cu111", "mmcv": "1.7.1"}
    assert report.machine.python == "3.8"


def test_cupy(catalogue: Catalogue) -> None:
    report = read_report(samples.CUPY, catalogue)
    assert report.machine.driver == Driver(None, "12.4")
    assert cards(report) == [("NVIDIA A40", "8.6")]
    assert platform(report) == {"os": "linux", "arch": "x86_64"}
    assert report.machine.python == "3.11"
    assert versions(report) == {"cupy": "13.3.0", "numpy": "1.26.4"}


def test_nvidia_smi(catalogue: Catalogue) -> None:
    report = read_report(samples.SMI, catalogue)
    assert report.machine.driver == Driver("550.144.03", "12.4")
    assert report.machine.gpus == (
        Gpu("NVIDIA A100-SXM4-80GB", "8.0", 81920, True),
        Gpu("NVIDIA A100-SXM4-80GB", "8.0", 81920),
    )


def test_a_name_that_the_table_cuts_off_still_tells_the_capability(catalogue: Catalogue) -> None:
    report = read_report(samples.SMI_OLD_CUT, catalogue)
    assert cards(report) == [(None, "7.5")]
    cut = "|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0  On |                  N/A |"
    assert cards(read_report(cut, catalogue)) == [(None, None)]


def test_a_whole_name_elsewhere_beats_one_cut_off(catalogue: Catalogue) -> None:
    report = read_report(samples.SMI_OLD_CUT + "GPU 0: GeForce RTX 2080 Ti (UUID: GPU-1234)\n", catalogue)
    assert cards(report) == [("GeForce RTX 2080 Ti", "7.5")]


def test_nvidia_smi_on_windows_and_of_newer_drivers(catalogue: Catalogue) -> None:
    report = read_report(samples.SMI_WINDOWS, catalogue)
    assert report.machine.driver == Driver("546.17", "12.3")
    assert report.machine.gpus == (Gpu("NVIDIA GeForce RTX 2060", "7.5", 6144),)
    newer = read_report(samples.SMI_NEWER, catalogue)
    assert newer.machine.driver == Driver("610.43.02", "13.3")
    assert cards(newer) == [("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU 0: NVIDIA H100 PCIe (UUID: GPU-1)\nGPU 1: NVIDIA H100 PCIe (UUID: GPU-2)", ["NVIDIA H100 PCIe"] * 2),
        ("GPU models and configuration: GPU 0-3: Tesla V100-SXM2-32GB", ["Tesla V100-SXM2-32GB"] * 4),
        ("GPU 0,1,2: NVIDIA GeForce RTX 3090", ["NVIDIA GeForce RTX 3090"] * 3),
        ("    Product Name                          : NVIDIA L40S\n    Product Brand : NVIDIA", ["NVIDIA L40S"]),
        (
            "$ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv\n"
            "name, driver_version, memory.total [MiB]\nNVIDIA H200, 570.86.15, 143771 MiB",
            ["NVIDIA H200"],
        ),
        (
            "$ nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader\nNVIDIA GB10, 12.1\n",
            ["NVIDIA GB10"],
        ),
        ("_CudaDeviceProperties(name='NVIDIA B200', major=10, minor=0, total_memory=182642MB)", ["NVIDIA B200"]),
        (">>> torch.cuda.get_device_name(0)\n'NVIDIA GeForce RTX 4070'", ["NVIDIA GeForce RTX 4070"]),
        (">>> print(torch.cuda.get_device_name(0))\nNVIDIA GeForce RTX 5090 D", ["NVIDIA GeForce RTX 5090 D"]),
    ],
)
def test_lists_of_cards(catalogue: Catalogue, text: str, expected: list[str]) -> None:
    assert [name for name, _ in cards(read_report(text, catalogue))] == expected


def test_no_devices_are_none(catalogue: Catalogue) -> None:
    assert read_report("$ nvidia-smi\nNo devices were found", catalogue).machine.gpus == ()
    assert read_report("GPU models and configuration: Could not collect", catalogue).machine.gpus is None


def test_a_table_repeated_in_the_container_is_one_machine(catalogue: Catalogue) -> None:
    report = read_report(f"On the host:\n{samples.SMI}\nIn the container:\n{samples.SMI}", catalogue)
    assert len(report.machine.gpus or ()) == 2
