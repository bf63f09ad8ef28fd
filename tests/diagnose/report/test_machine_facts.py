"""What single lines tell of a machine, and what they do not."""

from __future__ import annotations

import pytest

from envsolve.diagnose.report.read import read_report
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Gpu, HostCompiler, Machine, Platform, Toolkit


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


@pytest.mark.parametrize(
    ("text", "version", "cuda", "compat"),
    [
        ("The NVIDIA driver on your system is too old (found version 12040).", None, "12.4", None),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
            "535.183.01",
            "12.2",
            None,
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build",
            "580.95.05",
            "13.0",
            None,
        ),
        ("Driver 560.94 on Windows 11", "560.94", "12.6", None),
        ("driver version 470.76 is installed", "470.76", "11.4", None),
        ("NVIDIA driver: 535", "535", "12.2", None),
        ("the driver (525 series, CUDA 12.0)", "525", "12.0", None),
        ("host driver 460.80 (CUDA 11.2)", "460.80", "11.2", None),
        ("nvidia-smi already says CUDA 11.0", None, "11.0", None),
        ("driver reports CUDA 11.4", None, "11.4", None),
        ("nvidia-smi shows driver 470.103.01 and CUDA 11.4; nvcc shows 11.8", "470.103.01", "11.4", None),
        ("Nvidia driver 551.23 (CUDA 12.4)", "551.23", "12.4", None),
        ("driver: 535.129.03, CUDA: 12.2", "535.129.03", "12.2", None),
        ("Driver Version                            : 535.54.03\nCUDA Version : 12.2", "535.54.03", "12.2", None),
        ("libcuda.so -> /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", "550.54.15", "12.4", None),
        (
            "ERROR: This container was built for NVIDIA Driver Release 555.42 or later, but version 535.161.08"
            " was detected and compatibility mode is UNAVAILABLE.",
            "535.161.08",
            "12.2",
            None,
        ),
        (
            "The project requires '__cuda' to be at least version '12.4' but the system has version '12.2'",
            None,
            "12.2",
            None,
        ),
        # More than the kernel driver's branch supports: a compat library answered.
        ("Driver Version: 580.126.09     CUDA Version: 13.1", "580.126.09", "13.0", "13.1"),
        ("Driver Version: 535.104.05\n(found version 12080)", "535.104.05", "12.2", "12.8"),
        ("libcuda.so.1 (libc6,x86-64) => /usr/local/cuda-12.9/compat/libcuda.so.1", None, None, "12.9"),
        # A branch that is newer than the catalogue may support more than the last known one.
        ("Driver Version: 999.10     CUDA Version: 19.1", "999.10", "19.1", None),
        # A release of a Windows driver belongs to the branch below it.
        ("Driver Version: 552.22     CUDA Version: 12.4", "552.22", "12.4", None),
    ],
)
def test_driver(catalogue: Catalogue, text: str, version: str | None, cuda: str | None, compat: str | None) -> None:
    assert read_report(text, catalogue).machine.driver == Driver(version, cuda, compat)


@pytest.mark.parametrize(
    "text",
    [
        "It needs driver 570 or newer.",
        "Please upgrade to driver 580.",
        "Machine 2, driver 545.29.06: works.",
        "This requires driver 525.60.13.",
        "CUDA 12.4",
        "- CUDA version: 12.1",
        "CUDA Version: 12.1",
        "cards of the 470 and 535 branches",
        "Driver: needs 570 or newer",
        "torch built with CUDA 12.4",
        "Error 804: forward compatibility was attempted on non supported HW",
        "driver.py, line 535, in cuda",
        "CUDA driver version is insufficient for CUDA runtime version",
        "CUDA Driver Version : N/A",
    ],
)
def test_no_driver_is_told(catalogue: Catalogue, text: str) -> None:
    assert read_report(text, catalogue).machine.driver is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVIDIA L20 with CUDA capability sm_89 is not compatible with the current PyTorch installation.",
            [("NVIDIA L20", "8.9")],
        ),
        (
            "UserWarning: NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with",
            [("NVIDIA GeForce RTX 5090", "12.0")],
        ),
        ("    Found GPU0 GeForce GT 730M which is of cuda capability 3.0.", [("GeForce GT 730M", "3.0")]),
        (
            "Found Tesla P100-PCIE-16GB which is too old to be supported by the triton GPU compiler",
            [("Tesla P100-PCIE-16GB", "6.0")],
        ),
        ("Your Tesla T4 GPU has compute capability 7.5.", [("Tesla T4", "7.5")]),
        ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", [(None, "12.1")]),
        (">>> torch.cuda.get_device_capability()\n(12, 0)", [(None, "12.0")]),
        ("Two cards: one of capability 8.6, one of 8.9.", [(None, "8.6"), (None, "8.9")]),
        ("GPUs with compute capability 7.5 and 8.0", [(None, "7.5"), (None, "8.0")]),
        ("The device is compute capability 8.7.", [(None, "8.7")]),
        ("a card of capability 8.6 with CUDA 12.4 and torch 2.6", [(None, "8.6")]),
        ("I have 2x RTX A6000.", [("NVIDIA RTX A6000", "8.6")] * 2),
        ("8 H100s in one node", [("NVIDIA H100", "9.0")] * 8),
        ("A cluster with A100 and V100 nodes", [("NVIDIA A100", "8.0"), ("Tesla V100", "7.0")]),
        ("GPU: RTX 4070 Ti Super", [("NVIDIA GeForce RTX 4070 Ti SUPER", "8.9")]),
        ("- GPU model: NVIDIA GeForce RTX 3060 (12GB)", [("NVIDIA GeForce RTX 3060", "8.6")]),
        ("gpu\uff1artx3060", [("NVIDIA GeForce RTX 3060", "8.6")]),
        ("on a GeForce GTX 1650.", [("NVIDIA GeForce GTX 1650", "7.5")]),
        ("Google Colab, T4 GPU", [("Tesla T4", "7.5")]),
        ("my RTX 5090 laptop, sm_120 card of capability 12.0", [("NVIDIA GeForce RTX 5090 Laptop GPU", "12.0")]),
        ("GPU: RTX3090*2", [("NVIDIA GeForce RTX 3090", "8.6")] * 2),
        ("A100 80GB x 8", [("NVIDIA A100", "8.0")] * 8),
        ("My GPU is a 3090.", [("NVIDIA GeForce RTX 3090", "8.6")]),
        ("a 1080 px wide image on the GPU", []),
        ("CUDA SETUP: Highest compute capability among GPUs detected: 8.6", [(None, "8.6")]),
        ("DGX Spark", [("NVIDIA GB10", "12.1")]),
        ("Jetson Orin Nano dev kit", [("Jetson Orin Nano", "8.7")]),
        # "RTX 6000" means cards of three generations.
        ("RTX 6000", []),
        ("layer M4 of block A2, see table T4", []),
        ("It works on my RTX 3090.", []),
        ("an AMD Radeon RX 7900", []),
        ("GPU 0 has a total capacity of 23.64 GiB of which 1.2 GiB is free", []),
    ],
)
def test_cards(catalogue: Catalogue, text: str, expected: list[tuple[str | None, str | None]]) -> None:
    gpus = read_report(text, catalogue).machine.gpus or ()
    assert [(gpu.name, gpu.compute_capability) for gpu in gpus] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("OS: Ubuntu 24.04.1 LTS (x86_64)", Platform("linux", "x86_64", "glibc 2.39", "ubuntu 24.04")),
        ("OS: Microsoft Windows 11 Pro (10.0.22631 64-bit)", Platform("windows")),
        ("Red Hat Enterprise Linux release 8.6 (Ootpa)", Platform("linux", None, "glibc 2.28", "rhel 8.6")),
        ("CentOS Linux 7 (Core)", Platform("linux", None, "glibc 2.17", "centos 7")),
        ("Debian GNU/Linux 12 (bookworm)", Platform("linux", None, "glibc 2.36", "debian 12")),
        ("$ ldd --version\nldd (GNU libc) 2.28", Platform(libc="glibc 2.28")),
        ("ldd (Ubuntu GLIBC 2.35-0ubuntu3.8) 2.35", Platform("linux", libc="glibc 2.35")),
        ("$ uname -m\naarch64", Platform(arch="aarch64")),
        ("Linux node1 5.14.0-284.el9.x86_64 #1 SMP x86_64 GNU/Linux", Platform("linux", "x86_64")),
        ("Linux tegra 5.15.136-tegra #1 SMP aarch64 GNU/Linux", Platform("linux", "aarch64")),
        ("# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic", Platform(jetson="36.4.3")),
        ("Jetson AGX Orin, L4T R35.4.1", Platform("linux", "aarch64", jetson="35.4.1")),
        ("Windows 11 with WSL2", Platform("linux", wsl=True)),
        ("5.15.153.1-microsoft-standard-WSL2", Platform("linux", wsl=True)),
        (r"File C:\Users\me\venv\lib\site-packages\torch\__init__.py", Platform("windows")),
        (
            "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04",
            Platform("linux", None, "glibc 2.35", "ubuntu 22.04", None, "docker"),
        ),
        # What a Python before 3.9 takes for the C library's version is the oldest that it can run on.
        (
            "OS: Ubuntu 20.04.6 LTS (x86_64)\nLibc version: glibc-2.10",
            Platform("linux", "x86_64", "glibc 2.31", "ubuntu 20.04"),
        ),
        ("ImportError: /lib64/libm.so.6: version `GLIBC_2.27' not found", Platform("linux")),
        ("Ubuntu or Debian would do", None),
        ("gcc (Debian 12.2.0-14) 12.2.0", Platform("linux")),
        ("gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", Platform("linux", None, "glibc 2.35", "ubuntu 22.04")),
        ("I build it on Windows with MSVC.", Platform("windows")),
        ("flash-attn is not supported on Windows", None),
        ("OS: macOS 14.1 (arm64)", Platform("darwin", "aarch64")),
        ("sys.platform: win32", Platform("windows")),
        ("runs out of memory in a Singularity container", Platform(container="apptainer")),
        ("hint: You're on Linux (`manylinux_2_35_x86_64`), but ...", Platform("linux", "x86_64", "glibc 2.35")),
        ("a Kubernetes pod", Platform(container="kubernetes")),
        (
            'NAME="Rocky Linux"\nPRETTY_NAME="Rocky Linux 8.8 (Green Obsidian)"',
            Platform("linux", None, "glibc 2.28", "rocky 8.8"),
        ),
    ],
)
def test_platform(catalogue: Catalogue, text: str, expected: Platform | None) -> None:
    assert read_report(text, catalogue).machine.platform == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Python version: 3.10.14 (main, May  6 2024, 19:42:50) [GCC 11.2.0] (64-bit runtime)", "3.10"),
        (
            "Python 3.11.11 | packaged by Anaconda, Inc. | (main, Dec 11 2024) [MSC v.1929 64 bit (AMD64)] on win32",
            "3.11",
        ),
        ('  File "/opt/conda/lib/python3.12/site-packages/torch/__init__.py", line 2', "3.12"),
        (r"C:\Users\me\AppData\Local\Programs\Python\Python310\lib\site-packages\torch", "3.10"),
        ("_C.cpython-39-x86_64-linux-gnu.so: undefined symbol", "3.9"),
        ("python:3.12-slim", "3.12"),
        ("I use Python 3.10.", "3.10"),
        ("$ conda create -n x python=3.9 -y", "3.9"),
        ("Downloading torch-2.1.0-cp38-cp38-manylinux1_x86_64.whl (670 MB)", "3.8"),
        # For 3.8 and later, so it tells nothing.
        ("Downloading vllm-0.8.5-cp38-abi3-manylinux1_x86_64.whl (320 MB)", None),
        ("Requires Python 3.9 or newer", None),
        ("Works with Python 3.11", None),
        ("The wheel was built for Python 3.10", None),
        ("python3.10 -m venv venv", "3.10"),
        ("Using CPython 3.12.3 interpreter at: /usr/bin/python3", "3.12"),
        ("hint: You're using CPython 3.13 (`cp313`), but torch has no wheels for it", "3.13"),
        ("/venv/lib/python3.10/site-packages/x\n/usr/lib/python3.12/dist-packages/x", None),
    ],
)
def test_python(catalogue: Catalogue, text: str, expected: str | None) -> None:
    report = read_report(text, catalogue)
    assert report.machine.python == expected
    assert (report.python and report.python.value) == expected


@pytest.mark.parametrize(
    ("text", "nvcc", "toolkits"),
    [
        (
            "$ nvcc --version\nnvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2023 NVIDIA Corporation\n"
            "Built on Tue_Aug_15_22:02:13_PDT_2023\nCuda compilation tools, release 12.2, V12.2.140",
            "12.2",
            (Toolkit("12.2", None, True),),
        ),
        (
            "$ /opt/cuda/bin/nvcc -V | tail -1\nBuild cuda_12.6.r12.6/compiler.34714021_0",
            "12.6",
            (Toolkit("12.6", "/opt/cuda", True),),
        ),
        ("$ .../nvidia/bin/ptxas --version\nCuda compilation tools, release 12.8, V12.8.93", None, None),
        (
            "ptxas: NVIDIA (R) Ptx optimizing assembler\nCopyright\nBuilt on\n"
            "Cuda compilation tools, release 12.8, V12.8.93",
            None,
            None,
        ),
        ("CUDA_HOME=/usr/local/cuda-11.8", None, (Toolkit("11.8", "/usr/local/cuda-11.8"),)),
        ("-- The CUDA compiler identification is NVIDIA 12.4.131", "12.4", (Toolkit("12.4", None, True),)),
        (
            "Cuda compilation tools, release 11.5, V11.5.119\nerror: command '/usr/bin/nvcc' failed",
            "11.5",
            (Toolkit("11.5", "/usr", True),),
        ),
        # The build says which one it ran, whatever another nvcc printed later.
        (
            "The detected CUDA version (12.6) mismatches the version that was used to compile\nPyTorch (11.8).\n"
            "$ nvcc --version\nCuda compilation tools, release 11.8, V11.8.89",
            "12.6",
            (Toolkit("12.6", None, True), Toolkit("11.8", None, True)),
        ),
    ],
)
def test_toolkits(catalogue: Catalogue, text: str, nvcc: str | None, toolkits: tuple[Toolkit, ...] | None) -> None:
    report = read_report(text, catalogue)
    assert (report.nvcc and report.nvcc.value) == nvcc
    assert sorted(report.machine.toolkits or (), key=str) == sorted(toolkits or (), key=str)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gcc (Ubuntu 13.2.0-23ubuntu4) 13.2.0", HostCompiler("gcc", "13.2.0")),
        ("g++ (GCC) 8.5.0 20210514 (Red Hat 8.5.0-18)", HostCompiler("gcc", "8.5.0")),
        ("-- The CXX compiler identification is GNU 11.4.0", HostCompiler("gcc", "11.4.0")),
        ("-- The CXX compiler identification is MSVC 19.41.34120.0", HostCompiler("msvc", "19.41")),
        (
            r"C:\Program Files\Microsoft Visual Studio\VC\Tools\MSVC\14.38.33130\bin\Hostx64\x64\cl.exe",
            HostCompiler("msvc", "19.38"),
        ),
        (
            "RuntimeError: The current installed version of g++ (14.3.0) is greater than the maximum",
            HostCompiler("gcc", "14.3.0"),
        ),
        ("/usr/include/c++/13/bits/std_function.h:435:145: error: parameter packs", HostCompiler("gcc", "13")),
        ("/usr/lib/gcc/x86_64-linux-gnu/11/include/amxtileintrin.h: error", HostCompiler("gcc", "11")),
        ("RHEL 8.6, gcc 8.5, Python 3.9", HostCompiler("gcc", "8.5")),
        ("Python 3.10.4 (main, Mar 31 2022, 08:41:55) [GCC 7.5.0] on linux", None),
        ("  - GCC 9.3", None),
    ],
)
def test_host_compilers(catalogue: Catalogue, text: str, expected: HostCompiler | None) -> None:
    assert read_report(text, catalogue).machine.host_compilers == (None if expected is None else (expected,))


def test_code_that_torch_carries(catalogue: Catalogue) -> None:
    for text in (
        "The current PyTorch install supports CUDA capabilities sm_70 sm_75 compute_75.",
        ">>> torch.cuda.get_arch_list()\n['sm_70', 'sm_75', 'compute_75']",
    ):
        codes = read_report(text, catalogue).arch_list
        assert codes is not None and codes.value == ("sm_70", "sm_75", "compute_75")


def test_what_is_given_wins_field_by_field(catalogue: Catalogue) -> None:
    given = Machine(
        driver=Driver("550.54.15", "12.4"), gpus=(Gpu("NVIDIA A100", "8.0"),), platform=Platform(os="linux")
    )
    text = (
        "OS: Ubuntu 22.04.1 LTS (aarch64)\nDriver Version: 550.54.15  CUDA Version: 12.8\n"
        "GPU 0: NVIDIA H100\nPython version: 3.12.1 (64-bit runtime)"
    )
    report = read_report(text, catalogue, machine=given)
    assert report.machine.driver == Driver("550.54.15", "12.4", "12.8")
    assert report.machine.gpus == given.gpus
    assert report.machine.platform == Platform("linux", "aarch64", "glibc 2.35", "ubuntu 22.04")
    assert report.machine.python == "3.12"


def test_nothing_is_taken_from_another_machine(catalogue: Catalogue) -> None:
    given = Machine(driver=Driver("470.57.02"), platform=Platform(os="windows"))
    read = read_report("Driver Version: 570.1  CUDA Version: 12.8\nOS: Ubuntu 22.04.1 LTS", catalogue, machine=given)
    assert read.machine.driver == given.driver
    assert read.machine.platform == given.platform
