"""Fixes for projects: the lines that the project's file must hold, and a command that does not undo itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import envsolve
from envsolve.diagnose.model import describe
from envsolve.diagnose.project_fixes import Project, project_of_environment
from envsolve.environment.read import read_environment

_CPU = """AssertionError: Torch not compiled with CUDA enabled
torch==2.9.1+cpu
torchvision==0.24.1+cpu
Windows 11
| NVIDIA-SMI 570.86   Driver Version: 570.86.15   CUDA Version: 12.8 |
|   0  NVIDIA GeForce RTX 3090        Off |
"""
_CONDA = """AssertionError: Torch not compiled with CUDA enabled
pytorch                   2.5.1           cpu_generic_py312h_0    conda-forge
| NVIDIA-SMI 570.86   Driver Version: 570.86.15   CUDA Version: 12.8 |
|   0  NVIDIA GeForce RTX 3090        Off |
"""
_INDEX = "https://download.pytorch.org/whl/cu128"


def first(log: str) -> tuple[list[str], str]:
    """The lines and the command of the first fix."""
    fix = envsolve.diagnose(log, None).diagnoses[0].remedies[0]
    return fix.text.splitlines(), fix.command or ""


def test_a_uv_project_gets_sources_and_an_explicit_index() -> None:
    lines, command = first(f"$ uv sync\n$ uv run train.py\n{_CPU}")
    assert 'dependencies = ["torch==2.9.1+cu128", "torchvision==0.24.1+cu128", ...]' in lines
    assert {'torch = { index = "pytorch-cu128" }', f'url = "{_INDEX}"', "explicit = true"} <= set(lines)
    assert command == f"uv add --index pytorch-cu128={_INDEX} torch==2.9.1+cu128 torchvision==0.24.1+cu128"


def test_a_poetry_project_gets_a_source() -> None:
    lines, command = first(f'  File "~/.cache/pypoetry/virtualenvs/p-py3.11/lib/torch/cuda/__init__.py"\n{_CPU}')
    assert 'torch = { version = "2.9.1+cu128", source = "pytorch-cu128" }' in lines
    assert command.startswith(f"poetry source add --priority explicit pytorch-cu128 {_INDEX} && poetry add --source")


def test_a_pixi_project_keeps_conda_packages_and_names_the_driver() -> None:
    lines, command = first(f"$ pixi run python t.py\n{_CONDA}")
    assert {"[system-requirements]", 'pytorch = { version = "2.5.1", build = "cuda126*" }'} <= set(lines)
    assert command == 'pixi add "pytorch=2.5.1=cuda126*" "cuda-version=12.6"'


def test_a_pixi_project_with_wheels_names_the_index_of_each() -> None:
    lines, command = first(f"$ pixi run python t.py\n{_CPU}")
    assert f'torch = {{ version = "==2.9.1+cu128", index = "{_INDEX}" }}' in lines
    assert command == "pixi install"


def test_an_environment_file_gets_the_conda_packages() -> None:
    lines, command = first(f"$ conda env create -f environment.yml\n{_CONDA}")
    assert {"dependencies:", "  - pytorch=2.5.1=cuda126*", "  - cuda-version=12.6"} <= set(lines)
    assert command == "conda env update -f environment.yml --prune"


def test_the_embedded_python_of_comfyui_runs_pip_itself() -> None:
    _, command = first(f"C:\\ComfyUI>.\\python_embeded\\python.exe -s ComfyUI\\main.py\n{_CPU}")
    assert command.startswith(r".\python_embeded\python.exe -s -m pip install ")


def test_the_text_shows_each_line_of_the_file_on_a_line_of_its_own() -> None:
    shown = describe(envsolve.diagnose(f"$ uv sync\n{_CPU}", None)).splitlines()
    assert "      [[tool.uv.index]]" in shown


@pytest.mark.parametrize("words", ["uv pip install torch", "an environment", "uv venv", "uvicorn run"])
def test_these_words_show_no_project(words: str) -> None:
    command = envsolve.diagnose(f"$ {words}\n{_CPU}", None).diagnoses[0].remedies[0].command
    assert command and "pip install" in command


def test_the_project_of_an_environment_is_known_by_the_lock_beside_it(tmp_path: Path) -> None:
    prefix = tmp_path / ".venv"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.3\n")
    environment = read_environment(prefix, {})
    assert project_of_environment(environment) is None
    (tmp_path / "uv.lock").write_text("version = 1\n")
    assert project_of_environment(environment) == Project("uv", str(tmp_path))
    inside = replace(environment, kind="pixi", prefix=str(tmp_path / ".pixi" / "envs" / "default"))
    assert project_of_environment(inside) == Project("pixi", str(tmp_path))
