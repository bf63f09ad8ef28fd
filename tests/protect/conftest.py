"""Real environments on a loopback index, made once, copied for each test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.commandline import answered
from tests.indexserver import IndexServer
from tests.network.tools import program

TORCH = {
    "torch/__init__.py": b"",
    "torch/version.py": b"__version__ = '2.6.0+cu126'\ncuda = '12.6'\n",
}
#: Runs every torch for CUDA 12, none for CUDA 13.
OLD_DRIVER = "RTX 4090, driver 550.54, linux-x86_64"


@dataclass
class Shop:
    """An index with two torches, packages that want one or the other, and an environment with the older."""

    url: str
    torch_url: str
    prefix: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def cpu_url(self) -> str:
        return self.torch_url.replace("cu126", "cpu")

    @property
    def environ(self) -> dict[str, str]:
        uv = {"UV_DEFAULT_INDEX": self.url, "PIP_INDEX_URL": self.url}
        path = os.pathsep.join([str(Path(program("uv")).parent), os.environ["PATH"]])
        return {**os.environ, **uv, "PATH": path, **self.variables}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=600)

    def envsolve(self, *arguments: str, becomes_another: bool = False) -> subprocess.CompletedProcess[str]:
        if becomes_another:
            return self.run(program("envsolve"), *arguments)
        return answered(*arguments, environ=self.environ)

    def installed(self) -> dict[str, str]:
        found = [p.name.removesuffix(".dist-info").split("-") for p in self.prefix.glob("lib/*/*/*.dist-info")]
        return {name: version for name, version, *_ in found}


@pytest.fixture(scope="package")
def served() -> Iterator[IndexServer]:
    with IndexServer() as server:
        default = server.index()
        default.wheel("torch", "2.6.0", files=TORCH)
        default.wheel("torch", "2.15.0")
        default.wheel("torchvision", "0.21.0", requires=["torch==2.6.0"])
        default.wheel("loose", "1.0", requires=["torch>=2.7"])
        default.wheel("loose", "0.9", requires=["torch"])
        default.wheel("strict", "1.0", requires=["torch>=2.7"])
        default.wheel("harmless", "1.0")
        server.index("/whl/cu126/", style="pytorch").wheel("torch", "2.6.0+cu126", files=TORCH)
        server.index("/whl/cpu/", style="pytorch").wheel("torch", "2.6.0+cpu")
        yield server


@pytest.fixture
def shop(served: IndexServer, tmp_path: Path) -> Shop:
    made = Shop(f"{served.url}/simple/", f"{served.url}/whl/cu126/", tmp_path / "an env")
    uv = program("uv")
    for command in (
        (uv, "venv", "-q", "--python", sys.executable, str(made.prefix)),
        (uv, "pip", "install", "-q", "--python", str(made.prefix), "--default-index", made.torch_url, "torch"),
    ):
        done = made.run(*command)
        assert done.returncode == 0, done.stderr
    return made
