"""Commands, variables and images that a text shows."""

from __future__ import annotations

import pytest

from envsolve.diagnose.report.read import read_report
from envsolve.facts.catalogue import Catalogue


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ pip install torch", "pip install torch"),
        ("(env) me@host:~/src$ uv pip install vllm", "uv pip install vllm"),
        ("[me@node1 src]$ conda install pytorch -c conda-forge", "conda install pytorch -c conda-forge"),
        ("root@3f2a:/workspace# python setup.py install", "python setup.py install"),
        (r"(env) C:\Users\me\src>pip install triton-windows", "pip install triton-windows"),
        (r"PS C:\Users\me> nvidia-smi", "nvidia-smi"),
        ("> pip install xformers==0.0.33", "pip install xformers==0.0.33"),
        ("# uv pip install --system flash-attn", "uv pip install --system flash-attn"),
        ("\u276f uv pip list", "uv pip list"),
        ("!pip install -q torch", "pip install -q torch"),
        ("%pip install torch", "pip install torch"),
        ("RUN pip install torch==2.6.0", "pip install torch==2.6.0"),
        ("Step 5/9 : RUN --mount=type=cache,target=/x pip install torch", "pip install torch"),
        ("+ pip install torch", "pip install torch"),
        ("pip install -U torch on a Jetson with JetPack 6", "pip install -U torch"),
        (
            "Installed with: pip install torch --index-url https://example.org/whl/cu130",
            "pip install torch --index-url https://example.org/whl/cu130",
        ),
        ("I ran `uv pip install nvmolkit` in a new environment.", "uv pip install nvmolkit"),
        (
            "MAX_JOBS=4 pip install flash-attn --no-build-isolation",
            "MAX_JOBS=4 pip install flash-attn --no-build-isolation",
        ),
        (
            "$ pip install torch \\\n    torchvision \\\n    --index-url X",
            "pip install torch torchvision --index-url X",
        ),
        ("RUN pip install torch && \\\n    pip install flash-attn", "pip install torch && pip install flash-attn"),
        ("docker run --gpus all x:1            works", "docker run --gpus all x:1"),
        ("RUN pip install -r requirements.txt    # has a plain torch line", "pip install -r requirements.txt"),
        ("sudo apt-get install nvidia-cuda-toolkit", "sudo apt-get install nvidia-cuda-toolkit"),
    ],
)
def test_a_command_is_read(catalogue: Catalogue, text: str, expected: str) -> None:
    assert [command.value for command in read_report(text, catalogue).commands] == [expected]


@pytest.mark.parametrize(
    "text",
    [
        " + torch==2.8.0",
        " - torch==2.8.0",
        "> I have the same problem.",
        "# packages in environment at /opt/conda:",
        ">>> import torch",
        "The docker image is large.",
        "+-----------+",
        "conda env from environment.yml, then an extra with pip:",
        "100% |######| done",
    ],
)
def test_no_command_is_read(catalogue: Catalogue, text: str) -> None:
    assert read_report(text, catalogue).commands == ()


def test_commands_keep_their_order_and_place(catalogue: Catalogue) -> None:
    commands = read_report("x\n$ pip install a\ny\n$ pip install b\n$ pip install a", catalogue).commands
    assert [(command.value, command.where) for command in commands] == [
        ("pip install a", "line 2"),
        ("pip install b", "line 4"),
    ]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("export CUDA_HOME=/usr/local/cuda-12.1", "CUDA_HOME", "/usr/local/cuda-12.1"),
        ("CUDA_HOME=$CONDA_PREFIX pip install x", "CUDA_HOME", "$CONDA_PREFIX"),
        ('ENV TORCH_CUDA_ARCH_LIST="8.0 9.0+PTX"', "TORCH_CUDA_ARCH_LIST", "8.0 9.0+PTX"),
        ("ENV TORCH_CUDA_ARCH_LIST 8.0", "TORCH_CUDA_ARCH_LIST", "8.0"),
        ("TORCH_CUDA_ARCH_LIST=8.0 8.6 12.0", "TORCH_CUDA_ARCH_LIST", "8.0 8.6 12.0"),
        (r"set CUDA_PATH=C:\CUDA\v12.1", "CUDA_PATH", r"C:\CUDA\v12.1"),
        ('$env:CUDA_HOME = "C:\\CUDA"', "CUDA_HOME", r"C:\CUDA"),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "1"', "CUDA_VISIBLE_DEVICES", "1"),
        ("docker run -e NVIDIA_DISABLE_REQUIRE=1 x", "NVIDIA_DISABLE_REQUIRE", "1"),
        ("LD_LIBRARY_PATH=/usr/local/cuda/lib64:", "LD_LIBRARY_PATH", "/usr/local/cuda/lib64:"),
        ("CC=/usr/bin/gcc-11 pip install x", "CC", "/usr/bin/gcc-11"),
        ("It was built with CUDA_COMPUTE_CAP=80.", "CUDA_COMPUTE_CAP", "80"),
    ],
)
def test_variables(catalogue: Catalogue, text: str, name: str, value: str) -> None:
    assert read_report(text, catalogue).variables[name].value == value


def test_what_is_no_variable(catalogue: Catalogue) -> None:
    text = "torch==2.0\nif A_B == 1:\nx = CUDA_HOME\nBUILD_TYPE=Release, CUDA_VERSION == 11.3"
    assert set(read_report(text, catalogue).variables) <= {"BUILD_TYPE"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM nvidia/cuda:12.4.1-devel-ubuntu22.04 AS build", ["nvidia/cuda:12.4.1-devel-ubuntu22.04"]),
        ("Base image nvcr.io/nvidia/pytorch:24.05-py3, then pip", ["nvcr.io/nvidia/pytorch:24.05-py3"]),
        ("image: vllm/vllm-openai:v0.15.0", ["vllm/vllm-openai:v0.15.0"]),
        ("In a python:3.12-slim container:", ["python:3.12-slim"]),
        ("docker pull someone/llm:latest", ["someone/llm:latest"]),
        ('  File "/x/torch/cuda/__init__.py":104', []),
        ("https://example.org/nvidia/cuda:12.4", []),
        ("the image is large: 12 GB", []),
        ("cuda:0", []),
        ("python:re.search", []),
        ("FROM python:slim", ["python:slim"]),
    ],
)
def test_images(catalogue: Catalogue, text: str, expected: list[str]) -> None:
    assert [image.value for image in read_report(text, catalogue).images] == expected
