"""The loopback index is true to life: the installers that people use install from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.indexserver import IndexServer

PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
UV = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-cache", "--python", sys.executable]


@pytest.mark.parametrize("command", [PIP, UV], ids=["pip", "uv"])
def test_installers_install_from_it(command: list[str], server: IndexServer, tmp_path: Path) -> None:
    main, torch = server.index(), server.index("/whl/cu126/", style="pytorch", metadata=False)
    main.wheel("demo", "1.0", requires=["from-source>=0.1"])
    main.sdist("from-source", "0.1")
    torch.wheel("torch", "2.8.0+cu126", requires=["helper"])
    torch.wheel("helper", "1.0")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
    for number, (index, name) in enumerate([(main, "demo"), (torch, "torch")]):
        target = tmp_path / str(number)
        done = subprocess.run(
            [*command, "--target", target, "--index-url", index.url, name],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "0/from_source-0.1.dist-info").is_dir()
    assert (tmp_path / "1/torch-2.8.0+cu126.dist-info").is_dir()
