"""Packages that are absent, exclude each other or are for another Python: the cause, and what its fixes say or run."""

from __future__ import annotations

import pytest

import envsolve
from tests.diagnose.reports import assert_a_fix

_LOADING = (
    "RuntimeError: Could not load libtorchcodec. Likely causes:\n The PyTorch version ({torch}) is not compatible"
)
_DLL = "FFmpeg version 7: Could not load this library: D:\\v\\Lib\\site-packages\\torchcodec\\libtorchcodec_core7.dll"
_PLATFORM = "is not a supported wheel on this platform."
_PIP_CONFLICT = """The conflict is caused by:
    {0}
    {1}
ERROR: ResolutionImpossible"""
#: The report, the cause that comes first, and what one of its fixes says or runs.
KINDS = {
    "an index whose listed versions are those of an old Python": (
        "pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/test/cu124\nERROR: Could not find a"
        " version that satisfies the requirement torch==2.6.0 (from versions: 2.4.0+cu124, 2.4.1+cu124)",
        "python-caps-build",
        r"'torch==2\.6\.0' --index https://download\.pytorch\.org/whl/cu124",
    ),
    "an index whose listed versions are those of a new Python": (
        "ERROR: Could not find a version that satisfies the requirement torch==2.8.0+cu128"
        " (from versions: 2.9.0+cu128)",
        "python-caps-build",
        r"uv venv --python 3\.13 .*torch==2\.8\.0\+cu128' --index",
    ),
    "a build that the default index lacks": (
        "ERROR: Could not find a version that satisfies the requirement torch==2.8.0+cu128"
        " (from versions: 2.7.1, 2.8.0)",
        "index-confusion",
        r"^Use only the cu128 index",
    ),
    "a difference of CUDA that DeepSpeed accepts": (
        "[BUG] Installed CUDA version 12.4 does not match the version torch was compiled with 12.1\n"
        "Installed CUDA version 12.4 does not match the version torch was compiled with 12.1 but since the APIs are"
        " compatible, accepting this combination\nfatal error: Python.h: No such file or directory",
        "python-headers-missing",
        "python3.*-dev",
    ),
    "an extension with a wheel for this torch": (
        "torch 2.6.0+cu124, Python 3.11\nModuleNotFoundError: No module named 'flash_attn'",
        "dependency-missing",
        r"torch2\.6cxx11abi\w+-cp311",
    ),
    "a module whose package has another name": (
        "ModuleNotFoundError: No module named 'pynvml'",
        "dependency-missing",
        "pip install nvidia-ml-py",
    ),
    "a package that a program asks for in words": (
        "E:\\ui\\python_embeded\\python.exe main.py\nthe `sageattention` package must be installed first",
        "dependency-missing",
        r"python_embeded\\python\.exe -s -m pip install sageattention",
    ),
    "a package that an error names with its command": (
        "ImportError: Loading an 8-bit model requires Accelerate: `pip install accelerate` and bitsandbytes",
        "dependency-missing",
        "pip install accelerate",
    ),
    "torch in another interpreter": (
        "$ python3 main.py\nModuleNotFoundError: No module named 'torch'",
        "dependency-missing",
        r"sys\.executable.*python -m pip install",
    ),
    "a user's request against a package's pin": (
        _PIP_CONFLICT.format("The user requested torch==2.5.1", "vllm 0.8.5 depends on torch==2.6.0"),
        "mixed-flavours",
        r"torch==2\.6\.0\+cu124 vllm==0\.8\.5",
    ),
    "a pin in uv's words": (
        "Because vllm==0.8.5 depends on torch==2.6.0 and you require torch==2.5.1, we can conclude that your "
        "requirements are unsatisfiable.",
        "mixed-flavours",
        r"torch==2\.6\.0\+cu124 vllm==0\.8\.5",
    ),
    "two packages of which none can give way": (
        _PIP_CONFLICT.format("alpha 1.0 depends on numpy<2", "beta 2.0 depends on numpy>=2.1"),
        "mixed-flavours",
        r"pip install alpha beta numpy.*\.venv-alpha",
    ),
    "Poetry's range over a local version": (
        "$ poetry add torch torchvision\nBecause torchvision (0.16.0+cu118) depends on torch (2.1.0)\nSo, because site "
        "depends on both torch (^2.1.0+cu118) and torchvision (^0.16.0+cu118), version solving failed.",
        "mixed-flavours",
        r"poetry add --source pytorch-cu118 torch==2\.1\.0\+cu118 torchvision==0\.16\.0\+cu118",
    ),
    "a file for another Python": (
        f"Python 3.12.3\nERROR: thing-1.0-cp310-cp310-linux_x86_64.whl {_PLATFORM}",
        "python-caps-build",
        r"uv venv --python 3\.10 .*\./thing-1\.0",
    ),
    "a file for this Python by the pip of another": (
        f"Python 3.12.3\nERROR: thing-1.0-cp312-cp312-linux_aarch64.whl {_PLATFORM}\nJetson Orin",
        "python-caps-build",
        r"python3\.12 -m pip install \./thing",
    ),
    "a file for another system": (
        f"Ubuntu 22.04 x86_64\nERROR: thing-1.0-cp312-cp312-win_amd64.whl {_PLATFORM}",
        "python-caps-build",
        "for linux x86_64",
    ),
    "a stable ABI serves later Pythons": (
        f"Python 3.12.3\nERROR: thing-1.0-cp39-abi3-linux_x86_64.whl {_PLATFORM}",
        "python-caps-build",
        "-m pip install ./thing",
    ),
    "torchcodec and its torch on Windows": (
        f"torchcodec 0.9.1\n{_LOADING.format(torch='2.9.1+cu130')}\n{_DLL}",
        "library-mismatch",
        "winget install --id Gyan.FFmpeg.Shared",
    ),
    "torchcodec of another torch on Windows": (
        f"torchcodec0.9.1\n{_LOADING.format(torch='2.8.0+cu128')}\n{_DLL}",
        "mixed-flavours",
        r"torchcodec==0\.7",
    ),
    "torchcodec beside an unknown torch": (
        "OSError: /v/site-packages/torchcodec/libtorchcodec_core7.so: undefined symbol: torch_from_blob",
        "mixed-flavours",
        r"python -c .*import subprocess, sys, torch.*'2\.9': '0\.9\.1'",
    ),
    "a Jetson's packages": (
        "pip3 install onnxruntime-gpu on a Jetson Orin Nano\nERROR: No matching distribution found for onnxruntime-gpu",
        "no-such-build",
        "pip install onnxruntime-gpu --index-url https://pypi.jetson",
    ),
    "a Jetson whose torch finds no GPU": (
        "AssertionError: cuda device is not available\nJetson Orin Nano, torch from pip",
        "cpu-build",
        "jetson-ai-lab",
    ),
    "libraries of the host in a container": (
        "docker exec app nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\n"
        "NVML library version: 565.57\nThe host has driver 535.183.01",
        "driver-needs-reload",
        "apt-get purge",
    ),
}


@pytest.mark.parametrize(("log", "cause", "fix"), KINDS.values(), ids=KINDS)
def test_the_fixes(log: str, cause: str, fix: str) -> None:
    assert_a_fix(log, cause, fix)


@pytest.mark.parametrize(
    "log",
    [
        "ModuleNotFoundError: No module named 'utils'",
        "torch==2.4.0 flash-attn==2.6\nGetting requirements to build wheel\nNo module named 'numpy'",
        "The conflict is caused by:\n    a 1 depends on torch>=2.1\n    b 2 depends on torch<2.9",
    ],
    ids=["a program's own module", "a build", "demands that agree"],
)
def test_words_that_name_no_absent_package(log: str) -> None:
    assert {found.cause for found in envsolve.diagnose(log).diagnoses} & {
        "dependency-missing",
        "mixed-flavours",
    } == set()


def test_a_list_over_two_lines_is_read_to_its_end() -> None:
    log = "torch.cuda.get_arch_list()\n['sm_50', 'sm_60',\n 'sm_86', 'sm_90']\nRTX 5090\nno kernel image is available"
    assert "sm_50 sm_60 sm_86 sm_90" in envsolve.diagnose(log).diagnoses[0].explanation
