"""Versions: from lists, transactions, sessions and words; the last state wins."""

from __future__ import annotations

import json

import pytest

from envsolve.diagnose.model import Seen
from envsolve.diagnose.report.packages import read_installed
from envsolve.diagnose.report.read import read_report
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def installed(text: str, catalogue: Catalogue) -> dict[str, str]:
    return {name: version.value for name, version in read_report(text, catalogue).installed.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Successfully installed torch-2.4.1 nvidia-cuda-runtime-cu12-12.1.105", "torch 2.4.1"),
        ("Successfully installed sympy-1.13.1 ... torch-2.4.1+cu121 triton-3.0.0", "torch 2.4.1+cu121"),
        (
            "Requirement already satisfied: torch in ./venv/lib/python3.10/site-packages (2.4.1+cu121)",
            "torch 2.4.1+cu121",
        ),
        (
            "Requirement already satisfied: torch>=1.10 in /opt/conda/lib/python3.11/site-packages"
            " (from accelerate==0.34.2) (2.5.1)",
            "torch 2.5.1",
        ),
        (" + torch==2.8.0+cu129", "torch 2.8.0+cu129"),
        (" + torch==2.8.0 (from https://example.org/torch-2.8.0-cp312-cp312-linux_x86_64.whl)", "torch 2.8.0"),
        ("    Found existing installation: torch 2.1.0", "torch 2.1.0"),
        ("vllm 0.6.3 requires torch==2.4.0, but you have torch 2.5.1 which is incompatible.", "torch 2.5.1"),
        ("vllm 0.6.3 requires torch==2.4.0, but you have torch 2.5.1 which is incompatible.", "vllm 0.6.3"),
        ("[pip3] torch==2.9.0a0+git1234567", "torch 2.9.0a0+git1234567"),
        ("[conda] pytorch                   2.5.1           py3.12_cuda12.4_cudnn9.1.0_0    pytorch", "pytorch 2.5.1"),
        ("$ pip freeze\naccelerate==1.2.1\nfoo-bar==1.0", "foo-bar 1.0"),
        ("$ pip list\nPackage Version\n------- -------\nsome-package 3.1", "some-package 3.1"),
        ("$ conda list torch\n# Name     Version   Build  Channel\ntorch  2.4.1  pypi_0  pypi", "torch 2.4.1"),
        ("torch                     2.4.1                    pypi_0    pypi", "torch 2.4.1"),
        ("- torch                     2.1.2", "torch 2.1.2"),
        ("- torch==2.1.2", "torch 2.1.2"),
        ("$ pip show torch\nName: torch\nVersion: 2.3.1+cu118", "torch 2.3.1+cu118"),
        ("$ poetry show torch\n name         : torch\n version      : 2.0.1", "torch 2.0.1"),
        ("\u251c\u2500\u2500 torch v2.7.1", "torch 2.7.1"),
        ("I have torch==2.1.0+cu118 and xformers==0.0.22 installed.", "torch 2.1.0+cu118"),
        ("        - torch:             2.0.1+cu117", "torch 2.0.1+cu117"),
        ("| torch | 2.5.1 |", "torch 2.5.1"),
        ('>>> import torch\n>>> torch.__version__\n"2.8.0+cu128"', "torch 2.8.0+cu128"),
        ("In [2]: torch.__version__\nOut[2]: '2.8.0+cu128'", "torch 2.8.0+cu128"),
        (
            '$ python -c "import torch; print(torch.__version__, torch.version.cuda)"\n2.6.0+cu124 12.4',
            "torch 2.6.0+cu124",
        ),
        ("print(torch.__version__) -> 2.6.0+cu124", "torch 2.6.0+cu124"),
        ("torch.__version__ == '2.7.1'", "torch 2.7.1"),
        ("I use PyTorch 2.3.1 with vllm 0.5.4.", "torch 2.3.1"),
        ("- PyTorch version: 2.3.1", "torch 2.3.1"),
        ("- `transformers` version: 4.44.0", "transformers 4.44.0"),
        ("- PyTorch version (GPU?): 2.1.0+cu121 (True)", "torch 2.1.0+cu121"),
        ("My card is an RTX 5080 and torch is 2.6.0+cu126.", "torch 2.6.0+cu126"),
        ("PyTorch Version 2.4.0a0+07cecf4168", "torch 2.4.0a0+07cecf4168"),
        ("jax:    0.4.30", "jax 0.4.30"),
        ("the version torch is 2.0.1", "torch 2.0.1"),
        ("torch version\uff1a1.8.2+cu111", "torch 1.8.2+cu111"),
        ("> torch==2.8.0", "torch 2.8.0"),
        ("2025-05-01T10:00:00.1234567Z Successfully installed torch-2.7.0", "torch 2.7.0"),
        ("#12 103.4 Successfully installed torch-2.7.0", "torch 2.7.0"),
        ("\x1b[32m + \x1b[1mtorch\x1b[0m==2.7.0\x1b[0m", "torch 2.7.0"),
        (
            "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64.whl",
            "flash-attn 2.7.4.post1+cu12torch2.6cxx11abiFALSE",
        ),
    ],
)
def test_a_version_is_read(catalogue: Catalogue, text: str, expected: str) -> None:
    name, version = expected.split()
    assert installed(text, catalogue).get(name) == version


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.5 or 2.6",
        "torch 2.4+ is needed",
        "It needs torch 2.4.0 or newer.",
        "With torch 2.4.0 it worked.",
        "torch 2.6.0 gives the same error.",
        "Collecting torch==2.6.0",
        "I downgraded from torch 2.6.0 to torch 2.5.1.",
        "  Downloading torch-2.6.0-cp312-cp312-manylinux1_x86_64.whl.metadata (28 kB)",
        "    torch 2.6.0+cu124 depends on nvidia-cudnn-cu12==9.1.0.70",
        "ERROR: Could not find a version that satisfies the requirement torch==1.7.1 (from versions: 2.2.0, 2.3.0)",
        "requirements.txt:\ntorch==2.0.1\ntorchvision==0.15.2",
        "$ pip install torch==2.0.1",
        "  - pytorch::pytorch=2.5.1",
        '    "torch==2.6.0",',
        "ERROR: Cannot install torch==2.6.0+cu124 because these package versions have conflicting dependencies.",
        "See https://github.com/pytorch/pytorch/releases/tag/v2.6.0",
        "Successfully uninstalled torch-2.9.1",
        " - torch==2.9.1+cu128",
        "Skipping link: torch-2.6.0-cp39-cp39-linux_x86_64.whl",
    ],
)
def test_what_is_not_installed_is_left_out(catalogue: Catalogue, text: str) -> None:
    found = installed(text, catalogue)
    assert {name for name in found if name in {"torch", "pytorch", "torchvision"}} == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Successfully installed torch-2.9.1+cu128\n    Found existing installation: torch 2.9.1+cu128\n"
            "      Successfully uninstalled torch-2.9.1+cu128\nSuccessfully installed torch-2.9.0",
            "2.9.0",
        ),
        (
            "Successfully installed torch-2.13.0+cu132\n      Successfully uninstalled torch-2.13.0+cu132\n"
            "Successfully installed torch-2.13.0",
            "2.13.0",  # the same version of another build: its local part is not that of the old one
        ),
        (" - torch==2.7.0+cu128\n + torch==2.6.0", "2.6.0"),
        ("torch.__version__ == '2.12.0+cu130'\n$ uv pip list\nPackage Version\ntorch   2.12.0", "2.12.0+cu130"),
        ("I use torch 2.3.0.\n[pip3] torch==2.4.0", "2.4.0"),
        ("[pip3] torch==2.4.0\nI use torch 2.3.0.", "2.4.0"),
        ("torch 2.3.0 is in use.\nLater torch 2.5.0 came out.", "2.3.0"),
    ],
)
def test_the_present_wins(catalogue: Catalogue, text: str, expected: str) -> None:
    assert installed(text, catalogue)["torch"] == expected


def test_what_was_uninstalled_is_gone(catalogue: Catalogue) -> None:
    text = "Successfully installed nvidia-cudnn-cu12-9.1.0.70\n  Successfully uninstalled nvidia-cudnn-cu12-9.1.0.70"
    assert installed(text, catalogue) == {}


def test_pip_and_conda_records_stand_side_by_side(catalogue: Catalogue) -> None:
    text = (
        "$ conda list | grep torch\npytorch   1.11.0   py3.8_cuda11.3_cudnn8.2.0_0   pytorch\n"
        "torch     2.4.1    pypi_0                        pypi"
    )
    report = read_report(text, catalogue)
    assert {name: seen.value for name, seen in report.installed.items()} == {"pytorch": "1.11.0", "torch": "2.4.1"}
    assert report.machine.python == "3.8"
    assert report.cuda is not None and report.cuda.value == "11.3"


def test_a_cpu_build_says_none(catalogue: Catalogue) -> None:
    for text in (
        "CUDA used to build PyTorch: None",
        ">>> torch.__version__, torch.version.cuda, torch.cuda.is_available()\n('2.9.1+cpu', None, False)",
        "pytorch     2.5.1    cpu_mkl_py312h3b258cc_103    conda-forge",
    ):
        cuda = read_report(text, catalogue).cuda
        assert cuda is not None and cuda.value == "none"


INSTALLED = {
    "json": '{"torch": "2.8.0+cu128", "nvidia_nccl_cu12": "2.27.3"}',
    "pip list json": '[{"name": "torch", "version": "2.8.0+cu128"}, {"name": "nvidia-nccl-cu12", "version": "2.27.3"}]',
    "pip inspect": '{"version": "1", "installed": [{"metadata": {"name": "torch", "version": "2.8.0+cu128"}},'
    ' {"metadata": {"name": "nvidia-nccl-cu12", "version": "2.27.3"}}]}',
    "pip freeze": "torch==2.8.0+cu128\nnvidia-nccl-cu12==2.27.3\n-e /src/mine\nother @ file:///src/other\n",
    "wheel address": "torch @ https://example.org/whl/torch-2.8.0+cu128-cp312-cp312-linux_x86_64.whl#sha256=0\n"
    "nvidia-nccl-cu12==2.27.3 ; platform_system == 'Linux'\n",
    "pip list": "Package          Version      Editable project location\n---------------- ------------\n"
    "torch            2.8.0+cu128\nnvidia-nccl-cu12 2.27.3       /src/nccl\n",
    "uv freeze": "torch==2.8.0+cu128\r\nnvidia-nccl-cu12==2.27.3\r\n",
    "conda list": "# packages in environment at /opt/conda:\n#\n# Name    Version    Build  Channel\n"
    "torch    2.8.0+cu128    pypi_0    pypi\nnvidia-nccl-cu12    2.27.3    pypi_0    pypi\n",
    "conda export": "# platform: linux-64\ntorch=2.8.0+cu128=pypi_0\nnvidia-nccl-cu12=2.27.3=pypi_0\n",
    "conda yaml": "name: x\ndependencies:\n  - torch=2.8.0+cu128=h1_0\n  - pip:\n    - nvidia-nccl-cu12==2.27.3\n",
    "pixi list": "Package           Version      Build   Size     Kind   Source\n"
    "torch             2.8.0+cu128          845 MiB  pypi   torch-2.8.0.whl\n"
    "nvidia-nccl-cu12  2.27.3                1 MiB    pypi   nccl.whl\n",
    "conda json": '[{"name": "torch", "version": "2.8.0+cu128", "build_string": "pypi_0", "channel": "pypi"},'
    ' {"name": "nvidia-nccl-cu12", "version": "2.27.3"}]',
}


@pytest.mark.parametrize("layout", INSTALLED)
def test_installed_lists(layout: str) -> None:
    found = read_installed(INSTALLED[layout])
    assert {name: version.value for name, version in found.items()} == {
        "torch": "2.8.0+cu128",
        "nvidia-nccl-cu12": "2.27.3",
    }


def test_explicit_conda_list() -> None:
    text = "@EXPLICIT\nhttps://conda.anaconda.org/conda-forge/linux-64/pytorch-2.5.1-cuda126_py312h1_200.conda#0123\n"
    assert read_installed(text) == {"pytorch": Seen("2.5.1", "--installed, line 2", text.splitlines()[1])}


@pytest.mark.parametrize("text", ["{", "[1, 2]x", '{"a": {"b": 1}}', "nothing here at all", "[" * 100_000])
def test_a_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="list of what is installed"):
        read_installed(text)


def test_an_empty_environment_is_one() -> None:
    assert read_installed("") == read_installed("{}") == read_installed(json.dumps([])) == {}


def test_what_is_given_wins(catalogue: Catalogue) -> None:
    given = read_installed('{"torch": "2.8.0+cu128"}')
    report = read_report("[pip3] torch==2.4.0\n[pip3] triton==3.0.0", catalogue, installed=given)
    assert (report.installed["torch"].value, report.installed["torch"].where) == ("2.8.0+cu128", "--installed")
    assert report.installed["triton"].value == "3.0.0"
