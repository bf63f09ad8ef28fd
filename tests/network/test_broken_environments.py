"""Environments broken for real, by real installers: each is named, its first remedy is run, and it is then clean.

torch, cuDNN and Triton are excerpts of the published wheels (:mod:`tests.network.excerpts`) on a loopback server, which
also stands for PyTorch's own index; torchvision, NumPy, the CUDA runtime, cuFile and NVTX are whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envsolve._default_index import DEFAULT_INDEX
from envsolve.environment.read import read_outline
from envsolve.packages.client import IndexClient
from envsolve.packages.settings import IndexSettings
from tests.indexserver import IndexServer
from tests.network.excerpts import CUDNN, TORCH, add_excerpt
from tests.network.tools import Tools, program

pytestmark = pytest.mark.network

H100 = "H100, driver 570.86.15, linux-x86_64"
NEEDED = r"nvidia-(cuda-runtime|cudnn|nvtx)-cu12|triton"
RUNTIME, CUDNN_9 = "nvidia-cuda-runtime-cu12==12.4.127", "nvidia-cudnn-cu12==9.1.0.70"


#: Companions on PyTorch's own index: version, files, and libraries that the wheel brings.
COMPANIONS: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
    ("torchvision", "0.21.0", ("__init__.py", "version.py", "_C.so"), ("torchvision.libs/libcudart.41118559.so.12",)),
    ("torchaudio", "2.6.0", ("__init__.py", "version.py", "lib/libtorchaudio.so"), ()),
]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the excerpts: those of the default index, and those of PyTorch's own."""
    settings, cache = IndexSettings(default=DEFAULT_INDEX), tmp_path_factory.mktemp("cache")
    with IndexServer() as server, IndexClient(settings, cache_dir=cache) as client:
        add = partial(add_excerpt, server.index(), client)
        linux = "cp312-cp312-manylinux1_x86_64"
        add("torch", "2.6.0", TORCH, requires=NEEDED, platform=linux)
        add_cpu, add_cu124 = (partial(add_excerpt, server.index(f"/whl/{v}/"), client) for v in ("cpu", "cu124"))
        add_cpu("torch", "2.6.0", TORCH[:2], platform="cp312-cp312-win_amd64", local="+cpu")
        add_cu124("torch", "2.6.0", TORCH, requires=NEEDED, platform=linux, local="+cu124")
        add_cu124("torch", "2.5.1", TORCH, requires=NEEDED, platform=linux, local="+cu124")
        for package, version, own, brought in COMPANIONS:
            members = [*(f"{package}/{name}" for name in own), *brought]
            add_cu124(package, version, members, requires="torch==", platform=linux, local="+cu124")
        add("torch", "2.5.1", TORCH, requires=NEEDED, platform=linux)
        add("torch", "2.2.2", TORCH, requires=r"nvidia-(cuda-runtime|cudnn|nvtx)-", platform=linux)
        add("nvidia-cudnn-cu12", "9.1.0.70", CUDNN)
        add("nvidia-cudnn-cu13", "9.13.0.50", CUDNN)
        add("nvidia-cudnn-cu12", "8.9.2.26", ["nvidia/cudnn/lib/libcudnn.so.8"])
        add("triton", "3.2.0", ["triton/__init__.py"])
        add("triton", "3.1.0", ["triton/__init__.py"])
        yield server.url


@dataclass
class World:
    """An environment, the shell that it is used in, and the tools."""

    tools: Tools
    wheels: str
    prefix: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(program("uv")).parent), os.environ["PATH"]])
        indexes = {"UV_INDEX": f"{self.wheels}/simple/", "UV_DEFAULT_INDEX": DEFAULT_INDEX}
        return {**self.tools.environment, "PATH": path, **indexes, **self.variables}

    def run(self, command: str) -> str:
        """What a shell prints; ``export`` and ``unset`` hold from then on, as they would in a person's shell."""
        if match := re.fullmatch(r"export (\w+)=(.*)", command):
            self.variables[match[1]] = match[2]
            return ""
        if match := re.fullmatch(r"unset (\w+)", command):
            self.variables.pop(match[1])
            return ""
        command = re.sub(
            r"--index(?:-url)? https://download\.pytorch\.org(/whl/\w+)", rf"--index {self.wheels}\1/", command
        )
        done = subprocess.run(["bash", "-c", command], env=self.environ, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, f"{command}\n{done.stderr[-3000:]}"
        return done.stdout

    def install(self, *requirements: str) -> None:
        self.run(f"uv pip install --python {self.prefix} --no-deps {' '.join(requirements)}")

    def diagnoses(self) -> list[dict[str, Any]]:
        command = f"{program('envsolve')} diagnose --prefix {self.prefix} --target '{H100}' --format json"
        found: list[dict[str, Any]] = json.loads(self.run(command))["diagnoses"]
        return found


@pytest.fixture
def world(tools: Tools, wheels: str, tmp_path: Path) -> World:
    world = World(tools, wheels, tmp_path / "env")
    world.run(f"uv venv -q --python {sys.executable} {world.prefix}")
    world.install("torch==2.6.0", "triton==3.2.0", RUNTIME, CUDNN_9)
    return world


def cpu_torch_where_cuda_was_meant(world: World) -> None:
    world.install("--reinstall", f"--index {world.wheels}/whl/cpu/", "torch==2.6.0+cpu")


def cudnn_for_cuda_13_over_that_for_12(world: World) -> None:
    world.install("nvidia-cudnn-cu13==9.13.0.50")


def cudnn_half_removed_with_its_neighbour(world: World) -> None:
    world.install("nvidia-cudnn-cu13==9.13.0.50")
    world.run(f"uv pip uninstall --python {world.prefix} nvidia-cudnn-cu13")


def the_cuda_runtime_never_installed(world: World) -> None:
    world.run(f"uv pip uninstall --python {world.prefix} nvidia-cuda-runtime-cu12")


def the_cuda_runtime_of_another_torch(world: World) -> None:
    world.install("nvidia-cuda-runtime-cu12==12.1.105")


def torchvision_of_another_torch_and_cuda(world: World) -> None:
    world.install("torchvision==0.26.0")


def torchaudio_that_names_no_torch(world: World) -> None:
    """What ``pip install torch==2.6.0 torchaudio`` gives since torchaudio 2.11: its metadata asks for no torch."""
    world.install("torchaudio==2.11.0")


def triton_of_another_torch(world: World) -> None:
    world.install("triton==3.1.0")


def numpy_2_beside_a_torch_for_numpy_1(world: World) -> None:
    world.run(f"uv pip uninstall --python {world.prefix} triton torch")
    old = ("nvidia-cuda-runtime-cu12==12.1.105", "nvidia-cudnn-cu12==8.9.2.26", "nvidia-nvtx-cu12==12.1.105")
    world.install("torch==2.2.2", "numpy==2.1.3", *old)


def numpy_2_beside_a_package_for_numpy_1(world: World) -> None:
    world.install("shapely==2.0.2", "numpy==2.1.3")


def what_a_package_requires_uninstalled(world: World) -> None:
    world.install("pandas==2.2.3", "numpy==2.1.3", "python-dateutil", "pytz", "six")


def a_python_that_is_gone(world: World) -> None:
    (world.prefix / "bin/python").unlink()
    (world.prefix / "bin/python").symlink_to("/opt/gone/bin/python3")


def a_torch_on_pythonpath(world: World) -> None:
    other = world.prefix.parent / "other"
    world.run(f"uv pip install --python {world.prefix} --no-deps --target {other} torch==2.5.1")
    world.variables["PYTHONPATH"] = str(other)


def a_torch_of_the_users_own(world: World) -> None:
    """The environment is a Python with packages of its own, as conda's are: there the user's come first."""
    shutil.rmtree(world.prefix)
    base = Path(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__", "idlelib", "tkinter", "config-*")
    shutil.copytree(base / "lib" / name, world.prefix / "lib" / name, ignore=left_out)
    shutil.copytree(base / "include" / name, world.prefix / "include" / name)
    for library in base.glob("lib/libpython*"):
        shutil.copy2(library, world.prefix / "lib")
    (world.prefix / "bin").mkdir()
    shutil.copy2(base / "bin" / name, world.prefix / "bin")
    (world.prefix / "bin/python").symlink_to(name)
    (world.prefix / "lib" / name / "site-packages").mkdir()
    world.variables["HOME"] = str(world.prefix.parent / "home")
    world.variables["PIP_INDEX_URL"] = f"{world.wheels}/simple/"
    python = world.prefix / "bin/python"
    world.run(f"{python} -m ensurepip && {python} -m pip install torch==2.5.1 --no-deps --user")
    world.run(f"PYTHONNOUSERSITE=1 {python} -m pip install --no-deps torch==2.6.0 triton==3.2.0 {CUDNN_9}")
    world.run(f"PYTHONNOUSERSITE=1 {python} -m pip install --no-deps --index-url {DEFAULT_INDEX} {RUNTIME}")


def one_torch_written_over_another(world: World) -> None:
    info = next(world.prefix.glob("lib/*/site-packages/torch-2.6.0.dist-info"))
    kept = world.prefix.parent / info.name
    shutil.copytree(info, kept)
    world.install("torch==2.5.1", "triton==3.1.0")
    shutil.move(kept, info)


def an_older_library_first_on_the_loaders_path(world: World) -> None:
    world.install("nvidia-cufile-cu12==1.13.1.3")
    folder = world.prefix.parent / "cuda/lib64"
    world.run(f"uv pip install --python {world.prefix} --no-deps --target {folder} nvidia-cufile-cu12==1.11.1.6")
    # A toolkit's folder names its releases, where a wheel has the plain name alone.
    (folder / "nvidia/cufile/lib/libcufile.so.0").rename(folder / "libcufile.so.1.11.1")
    (folder / "libcufile.so.0").symlink_to("libcufile.so.1.11.1")
    world.variables["LD_LIBRARY_PATH"] = str(folder)


BROKEN: list[Any] = [
    (cpu_torch_where_cuda_was_meant, "cpu-build"),
    (cudnn_for_cuda_13_over_that_for_12, "library-mismatch"),
    (cudnn_half_removed_with_its_neighbour, "lock-incomplete"),
    (the_cuda_runtime_never_installed, "lock-incomplete"),
    (the_cuda_runtime_of_another_torch, "library-mismatch"),
    (torchvision_of_another_torch_and_cuda, "mixed-flavours"),
    (torchaudio_that_names_no_torch, "mixed-flavours"),
    (triton_of_another_torch, "triton-torch-mismatch"),
    pytest.param(
        numpy_2_beside_a_torch_for_numpy_1,
        "library-mismatch",
        marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="NumPy 1 has no wheels for this Python"),
    ),
    pytest.param(
        numpy_2_beside_a_package_for_numpy_1,
        "library-mismatch",
        marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="NumPy 1 has no wheels for this Python"),
    ),
    (what_a_package_requires_uninstalled, "dependency-missing"),
    (a_python_that_is_gone, "interpreter-missing"),
    (a_torch_on_pythonpath, "torch-replaced"),
    (a_torch_of_the_users_own, "torch-replaced"),
    (one_torch_written_over_another, "torch-replaced"),
    (an_older_library_first_on_the_loaders_path, "library-shadowed"),
]


def test_an_environment_in_order_is_clean(world: World) -> None:
    assert world.diagnoses() == []


@pytest.mark.parametrize(("damage", "cause"), BROKEN)
def test_a_broken_environment_is_named_and_its_remedy_mends_it(
    world: World, damage: Callable[[World], None], cause: str
) -> None:
    damage(world)
    first = world.diagnoses()[0]
    assert first["cause"] == cause, first
    assert first["evidence"]
    if cause != "interpreter-missing":
        _imports_what_the_reader_says(world)
    world.run(first["remedies"][0]["command"])
    assert world.diagnoses() == []
    _imports_what_the_reader_says(world)


def _imports_what_the_reader_says(world: World) -> None:
    """The environment's own interpreter finds the torch that reading its files found first."""
    found = read_outline(world.prefix, world.environ)
    assert found.torch is not None
    question = "import importlib.util; print(importlib.util.find_spec('torch').origin)"
    answer = world.run(f'cd / && {world.prefix}/bin/python -c "{question}"').strip()
    assert answer == f"{found.torch.site}/torch/__init__.py"
