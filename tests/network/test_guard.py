"""What real pip and uv would do to a real torch on the real index; only metadata is fetched for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envsolve._default_index import DEFAULT_INDEX
from tests.network.tools import Tools, program

pytestmark = pytest.mark.network

OLD_DRIVER = "RTX 4090, driver 550.54, linux-x86_64"


@pytest.fixture(scope="module")
def prefix(tools: Tools) -> Path:
    """An environment whose metadata says torch 2.6.0, for an installer to find."""
    made = tools.folder / "env"
    tools.run(program("uv"), "venv", "-q", "--python", sys.executable, str(made))
    info = next(made.glob("lib/python3.*/site-packages")) / "torch-2.6.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return made


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_newer_torchvision_would_bring_a_torch_that_the_driver_does_not_run(
    tools: Tools, prefix: Path, installer: str
) -> None:
    uv = [program("uv"), "pip", "install", "--python", str(prefix), "--default-index", DEFAULT_INDEX]
    pip = [sys.executable, "-m", "pip", "--python", str(prefix), "install", "--index-url", DEFAULT_INDEX]
    guard = ["guard", "--target", OLD_DRIVER, "--dry-run", "--format", "json", "-o", tools.file("found.json", [])]
    words = uv if installer == "uv" else pip
    command = [program("envsolve"), *guard, "--", *words, "torchvision==0.28.0"]
    done = subprocess.run(command, env=tools.environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 4, done.stderr
    found: dict[str, Any] = json.loads((tools.folder / "found.json").read_text())
    assert (found["works"], found["unasked"], found["keeps"]) == ("no", ["torch"], None)
    assert "driver 580" in found["why"]
